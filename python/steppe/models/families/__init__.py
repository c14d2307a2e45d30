"""One module a family of architectures, and the table of the architectures they derive."""

from steppe.models.architecture import Family
from steppe.models.families import dense

FAMILIES: dict[str, Family] = {
    "LlamaForCausalLM": dense.llama,
    "MistralForCausalLM": dense.llama,
    "Ministral3ForCausalLM": dense.llama,
    "Qwen2ForCausalLM": dense.qwen2,
    "Qwen3ForCausalLM": dense.qwen3,
}
