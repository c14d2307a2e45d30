"""One module a family of architectures, and the table of the architectures they derive."""

from steppe.models.architecture import Family
from steppe.models.families import deepseek, dense, dsa, gdn, gemma, llama4, moe, nemotron

FAMILIES: dict[str, Family] = {
    "DeepseekV2ForCausalLM": deepseek.deepseek,
    "DeepseekV3ForCausalLM": deepseek.deepseek,
    "DeepseekV32ForCausalLM": dsa.sparse_latent,
    "Gemma2ForCausalLM": gemma.gemma2,
    "Gemma3ForCausalLM": gemma.gemma3,
    "Gemma3ForConditionalGeneration": gemma.gemma3,
    "Gemma4ForCausalLM": gemma.gemma4,
    "Gemma4ForConditionalGeneration": gemma.gemma4,
    "GlmMoeDsaForCausalLM": dsa.sparse_latent,
    "GptOssForCausalLM": moe.gpt_oss,
    "KimiK25ForConditionalGeneration": deepseek.deepseek,
    "Llama4ForCausalLM": llama4.llama4,
    "Llama4ForConditionalGeneration": llama4.llama4,
    "LlamaForCausalLM": dense.llama,
    "MiniMaxM2ForCausalLM": moe.minimax_m2,
    "Ministral3ForCausalLM": dense.llama,
    "MistralForCausalLM": dense.llama,
    "MixtralForCausalLM": moe.mixtral,
    "NemotronHForCausalLM": nemotron.nemotron_h,
    "Qwen2ForCausalLM": dense.qwen2,
    "Qwen3NextForCausalLM": gdn.qwen_hybrid,
    "Qwen3_5ForCausalLM": gdn.qwen_hybrid,
    "Qwen3_5ForConditionalGeneration": gdn.qwen_hybrid,
    "Qwen3_5MoeForCausalLM": gdn.qwen_hybrid,
    "Qwen3_5MoeForConditionalGeneration": gdn.qwen_hybrid,
    "Qwen3ForCausalLM": dense.qwen3,
    "Qwen3MoeForCausalLM": moe.qwen3_moe,
    "Qwen3VLForConditionalGeneration": dense.qwen3,
    "Qwen3VLMoeForConditionalGeneration": moe.qwen3_moe,
}
