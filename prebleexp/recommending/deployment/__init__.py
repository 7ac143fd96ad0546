"""A recommendation as files: how engines and routers are started, and a Kubernetes manifest."""
