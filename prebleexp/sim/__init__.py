"""The simulated cluster: request streams in, outcome arrays out. Knows no other part of the package."""
