"""KV connectors of vLLM 0.31.0."""

from __future__ import annotations

# vllm/distributed/kv_transfer/kv_connector/factory.py:153-249
CONNECTORS = (
    "ExampleConnector",
    "ExampleHiddenStatesConnector",
    "LMCacheConnectorV1",
    "LMCacheMPConnector",
    "NixlConnector",
    "NixlPullConnector",
    "NixlPushConnector",
    "MultiConnector",
    "HiSparseConnector",
    "MoRIIOConnector",
    "OffloadingConnector",
    "DecodeBenchConnector",
    "MooncakeConnector",
    "MooncakeStoreConnector",
    "FlexKVConnectorV1",
    "SimpleCPUOffloadConnector",
    "HF3FSKVConnector",
)

# The engine looks for this very name. vllm/config/vllm.py:3357-3362
NIXL = "NixlConnector"
# Its children, which decide everything below, are not in a deployment document. vllm/config/kv_transfer.py:156-163
MULTI = "MultiConnector"

# Connectors without the hybrid cache manager: the engine turns the manager off and promotes windows to full attention.
# vllm/config/vllm.py:2251-2272; a connector supports it by subclassing `SupportsHMA`,
# vllm/distributed/kv_transfer/kv_connector/v1/base.py:99-134
WITHOUT_HYBRID_MANAGER = (
    "ExampleConnector",
    "LMCacheConnectorV1",
    "LMCacheMPConnector",
    "FlexKVConnectorV1",
    "HF3FSKVConnector",
)
