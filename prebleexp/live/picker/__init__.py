"""A policy as an endpoint picker behind Envoy (`prebleexp pick`): the ext_proc server of the Gateway API Inference
Extension, https://github.com/kubernetes-sigs/gateway-api-inference-extension/tree/main/docs/proposals.

`messages` says what Envoy is answered, `stream` follows one request and its answer, `picker` asks the policy, tells it
what became of all, and lets requests wait, `served` is the process. It needs `pip install 'prebleexp[picker]'`.
"""
