// SPDX-License-Identifier: Apache-2.0
// What trees of drafts cost where none is right: a model of random weights, and heads that know
// nothing of it: few are proposed then. Prints tokens per second with heads and without. A head of
// EAGLE, whose layer is here a 22nd of the model, follows many steps at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "artifact/safetensors.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/eagle_files.h"
#include "gpu_test.h"
#include "model/families/families.h"
#include "run_requests.h"
#include "tensor/element.h"

namespace inflight {
namespace {

namespace fs = std::filesystem;

// In the shape of TinyLlama-1.1B: steps are short, so that what comes beside them shows.
model::ModelConfig SmallLlama() {
  model::ModelConfig config = gpu::Must(model::FamilyOf("LlamaForCausalLM"))->config;
  config.dtype = DType::kBF16;
  config.vocab_size = 32000;
  config.hidden_size = 2048;
  config.num_layers = 22;
  config.num_heads = 32;
  config.num_kv_heads = 4;
  config.head_dim = 64;
  config.intermediate_size = 5632;
  config.max_position_embeddings = 2048;
  return config;
}

// A head of EAGLE whose fc and layer are small numbers.
Result<std::shared_ptr<const model::EagleHead>> OpenIgnorantHead(const model::ModelConfig& model,
                                                                 Device& device) {
  const fs::path dir = fs::path(testing::TempDir()) / "ignorant_head";
  fs::remove_all(dir);
  fs::create_directories(dir);
  RETURN_IF_ERROR(WriteFile(dir / "config.json",
                            R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
"intermediate_size": 5632, "num_hidden_layers": 1, "num_attention_heads": 32,
"num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000, "rms_norm_eps": 1e-5,
"max_position_embeddings": 2048, "hidden_act": "silu", "model_type": "llama"})"));
  const int64_t h = model.hidden_size;
  const int64_t kv = int64_t{model.num_kv_heads} * model.head_dim;
  const int64_t inner = model.intermediate_size;
  const std::string layer = "layers.0.";
  const std::vector<artifact::TensorSpec> specs = {
      {"fc.weight", DType::kBF16, {h, 2 * h}},
      {layer + "self_attn.q_proj.weight", DType::kBF16, {h, h}},
      {layer + "self_attn.k_proj.weight", DType::kBF16, {kv, h}},
      {layer + "self_attn.v_proj.weight", DType::kBF16, {kv, h}},
      {layer + "self_attn.o_proj.weight", DType::kBF16, {h, h}},
      {layer + "post_attention_layernorm.weight", DType::kBF16, {h}},
      {layer + "mlp.gate_proj.weight", DType::kBF16, {inner, h}},
      {layer + "mlp.up_proj.weight", DType::kBF16, {inner, h}},
      {layer + "mlp.down_proj.weight", DType::kBF16, {h, inner}}};
  ASSIGN_OR_RETURN(auto writer,
                   artifact::SafetensorsWriter::Create(dir / "model.safetensors", specs));
  for (const artifact::TensorSpec& spec : specs) {
    std::vector<std::byte> values(BytesOf(spec.dtype, spec.shape.num_elements()));
    for (int64_t i = 0; i < spec.shape.num_elements(); ++i)
      StoreFloat(values.data(), spec.dtype, i, 0.02F * static_cast<float>(i * 37 % 19 - 9) / 9);
    RETURN_IF_ERROR(writer.Append(values));
  }
  RETURN_IF_ERROR(writer.Finish());
  auto head = builder::OpenEagleHead(dir, model, device);
  fs::remove_all(dir);
  return head;
}

class TreesCostTest : public gpu::GpuTest {
 protected:
  struct Speed {
    double tokens_per_second = 0;
    ExecutorStats stats;
  };

  static constexpr int kRuns = 5;
  static constexpr int kNumTokens = 256;  // of an answer

  // The best of some runs.
  Speed Measure(const std::shared_ptr<const model::Engine>& engine, DraftSource source,
                const executor::DraftWeights& draft, int batch_size) {
    ExecutorOptions options = {.max_batch_size = batch_size, .drafts = source};
    options.max_num_tokens = 1024;
    options.max_kv_tokens = 16384;
    options.enable_prefix_reuse = false;
    const auto executor = MakeExecutor(engine, device(), options, {}, draft);
    std::vector<Request> requests;
    for (int i = 0; i < batch_size; ++i) {
      Request request;
      for (int t = 0; t < 64; ++t) request.input_ids.push_back(1 + (i * 977 + t * 131) % 31000);
      request.max_tokens = kNumTokens;
      request.sampling = {.temperature = 1.0F, .seed = static_cast<uint64_t>(i)};
      requests.push_back(std::move(request));
    }
    Speed best;
    for (int run = 0; run < kRuns; ++run) {
      const auto start = std::chrono::steady_clock::now();
      RunAll(*executor, requests);
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best.tokens_per_second = std::max(best.tokens_per_second, batch_size * kNumTokens / seconds);
    }
    executor->Shutdown(0);
    best.stats = executor->stats();
    return best;
  }
};

TEST_F(TreesCostTest, WhereNoDraftIsRightFewAreProposed) {
  model::ModelConfig config = SmallLlama();
  config.num_medusa_heads = 4;
  const auto engine = gpu::Must(builder::Random(config, {.max_seq_len = 2048}, 7, device()));
  const auto head = gpu::Must(OpenIgnorantHead(config, device()));
  for (const int batch_size : {1, 16}) {
    const Speed plain = Measure(engine, DraftSource::kNone, {}, batch_size);
    const Speed medusa = Measure(engine, DraftSource::kMedusa, {}, batch_size);
    const Speed eagle = Measure(engine, DraftSource::kEagle, {.eagle = head}, batch_size);
    for (const auto& [name, speed] : {std::pair{"Medusa", medusa}, {"EAGLE", eagle}}) {
      std::printf("%d at once, %s: %.0f tokens/s, %.3f of %.0f; %lld of %lld drafts accepted\n",
                  batch_size, name, speed.tokens_per_second,
                  speed.tokens_per_second / plain.tokens_per_second, plain.tokens_per_second,
                  static_cast<long long>(speed.stats.drafts_accepted),
                  static_cast<long long>(speed.stats.tokens_drafted));
      EXPECT_LT(speed.stats.tokens_drafted, kRuns * batch_size * kNumTokens) << name;
    }
  }
}

}  // namespace
}  // namespace inflight
