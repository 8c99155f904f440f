// SPDX-License-Identifier: Apache-2.0
// What a decoder promises to the stream that brings its weights, on the CPU: a layer is not read
// before BeginLayer nor after EndLayer. The stream here fills a buffer when a layer begins, and
// with NaN when it has ended.
#include "model/weight_stream.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "builder/builder.h"
#include "model/weight_slots.h"
#include "ops/backend.h"
#include "paged_model.h"

namespace inflight::golden {
namespace {

using EnginePtr = std::shared_ptr<const model::Engine>;

model::ModelConfig SmallConfig(model::QuantAlgo algo) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.quant_algo = algo;
  config.vocab_size = 96;
  config.hidden_size = 64;
  config.num_layers = 5;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 128;
  config.max_position_embeddings = 64;
  return config;
}

// A layer's slots lie side by side, as engines have them.
model::HostLayer BytesOfLayer(model::Engine& engine, int layer) {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  for (const model::WeightSlot& slot : model::WeightSlots(engine.config, engine.weights)) {
    if (slot.layer != layer) continue;
    const void* data = model::DataOf(slot);
    const auto* const bytes = static_cast<const std::byte*>(data);
    if (begin == nullptr) begin = bytes;
    end = bytes + model::StoredBytes(engine.config, slot, DeviceKind::kCpu);
  }
  return {.layer = layer, .data = begin, .num_bytes = static_cast<uint64_t>(end - begin)};
}

class PoisoningStream : public model::WeightStream {
 public:
  explicit PoisoningStream(const model::Engine& engine) : engine_(engine) {
    std::vector<std::byte*> places;
    for (const model::HostLayer& layer : engine.host_layers) {
      std::vector<std::byte>& place = places_[layer.layer];
      place.resize(layer.num_bytes + 64);
      Poison(layer.layer);
      places.push_back(Aligned(layer.layer));
    }
    weights_ = model::MovedWeights(engine, places);
  }

  const model::DecoderWeights& weights() const override { return weights_; }

  Status BeginLayer(size_t layer, Stream&) override {
    calls_ += "+" + std::to_string(layer);
    for (const model::HostLayer& host : engine_.host_layers)
      if (host.layer == static_cast<int>(layer))
        std::memcpy(Aligned(host.layer), host.data, host.num_bytes);
    return Status::Ok();
  }
  Status EndLayer(size_t layer, Stream&) override {
    calls_ += "-" + std::to_string(layer);
    if (places_.contains(static_cast<int>(layer))) Poison(static_cast<int>(layer));
    return Status::Ok();
  }

  std::string TakeCalls() { return std::exchange(calls_, {}); }

 private:
  std::byte* Aligned(int layer) {
    const auto at = reinterpret_cast<uintptr_t>(places_.at(layer).data());
    return places_.at(layer).data() + (64 - at % 64) % 64;
  }
  void Poison(int layer) {
    std::vector<std::byte>& place = places_.at(layer);
    std::memset(place.data(), 0xff, place.size());
  }

  const model::Engine& engine_;
  std::map<int, std::vector<std::byte>> places_;
  model::DecoderWeights weights_;
  std::string calls_;
};

TEST(WeightStreamTest, ADecoderReadsLayersOnlyWhileTheyAreThere) {
  const auto device = Device::Cpu(2);
  using enum model::QuantAlgo;
  for (const model::QuantAlgo algo : {kNone, kW8A16, kW4A16Gptq}) {
    model::ModelConfig config = SmallConfig(algo);
    if (HasGroups(algo)) {
      config.group_size = 32;
      config.has_zero_point = true;
    }
    const auto made = builder::Random(config, {}, /*seed=*/3, *device);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const auto table = ops::FindOps(*device, model::KernelShape(config), {});
    ASSERT_TRUE(table.ok());
    const std::vector<TokenId> ids = {5, 17, 3, 80, 41, 2, 9};
    const size_t chunks[] = {4, 1};
    PagedModel plain(*made, *table, *device, 1, 16);
    const auto want = AllLogits(plain, ids, chunks);

    auto& engine = const_cast<model::Engine&>(**made);  // a list beside weights that stay
    for (const int layer : {0, 2, 3, 4}) engine.host_layers.push_back(BytesOfLayer(engine, layer));
    PoisoningStream stream(engine);
    PagedModel streamed(*made, *table, *device, 1, 16, {}, &stream);
    EXPECT_EQ(AllLogits(streamed, ids, chunks), want);
    EXPECT_EQ(stream.TakeCalls().substr(0, 20), "+0+1-0+2-1+3-2+4-3-4");
  }
}

}  // namespace
}  // namespace inflight::golden
