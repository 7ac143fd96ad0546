"""The router that charges a decision with the delay of others."""
