// SPDX-License-Identifier: Apache-2.0
// Weights on a GPU against those that the host packs, byte by byte. Skipped without a GPU.
#include "builder/upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "artifact/block_codec.h"
#include "artifact/checkpoint.h"
#include "artifact/safetensors.h"
#include "base/file.h"
#include "builder/builder.h"
#include "builder/engine_writer.h"
#include "builder/pack.h"
#include "builder/test_models.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"

namespace inflight::builder {
namespace {

using model::QuantAlgo;
using testing::HasSubstr;

class UploadTest : public testing::Test {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    gpu_ = TestGpu().value().get();
    dir_ = std::filesystem::path(testing::TempDir()) / ("upload_" + std::to_string(getpid()));
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Of float32: a NaN has many encodings, and those of GPUs and CPUs differ.
  static void UnifyNaNs(std::vector<std::byte>* bytes) {
    for (size_t i = 0; i < bytes->size(); i += sizeof(float)) {
      float value = 0;
      std::memcpy(&value, &(*bytes)[i], sizeof(value));
      if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
      std::memcpy(&(*bytes)[i], &value, sizeof(value));
    }
  }

  // The slots of `dir` opened with `options`, uploaded, against PackSlot.
  void ExpectSame(const std::filesystem::path& dir, const SourceOptions& options) {
    const auto source = OpenWeightSource(dir, options);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    ExpectSame(**source);
  }
  void ExpectSame(const WeightSource& source) {
    const model::ModelConfig& config = source.config;
    model::DecoderWeights unused;
    std::vector<PlacedSlot> slots;
    uint64_t offset = 0;
    for (model::WeightSlot& slot : model::WeightSlots(config, unused)) {
      const uint64_t num_bytes = StoredBytes(config, slot, DeviceKind::kCuda);
      slots.push_back({std::move(slot), reinterpret_cast<std::byte*>(offset), num_bytes});
      offset += (num_bytes + 63) / 64 * 64;
    }
    const auto buffer = Buffer::Allocate(*gpu_, "weights", offset);
    ASSERT_TRUE(buffer.ok()) << buffer.status().ToString();
    std::vector<std::vector<std::byte>> wanted;
    for (const PlacedSlot& placed : slots)
      PackSlot(source, placed.slot, DeviceKind::kCuda, gpu_->cpu_pool(),
               wanted.emplace_back(placed.num_bytes).data());
    ExpectSameAt(buffer->data(), /*is_on_host=*/false, source, slots, wanted);
    const auto pinned = PinnedBuffer::AllocateLarge(*gpu_, offset);
    ASSERT_TRUE(pinned.ok()) << pinned.status().ToString();
    ExpectSameAt(pinned->data(), /*is_on_host=*/true, source, slots, wanted);
    EXPECT_GE(gpu_->ledger().free_bytes() + buffer->size(), gpu_->ledger().capacity_bytes())
        << "nothing else is kept";
  }

  // The targets of `slots` count from `base`.
  void ExpectSameAt(std::byte* base, bool is_on_host, const WeightSource& source,
                    std::vector<PlacedSlot> slots,
                    const std::vector<std::vector<std::byte>>& wanted) {
    const model::ModelConfig& config = source.config;
    for (PlacedSlot& placed : slots) {
      placed.target = base + reinterpret_cast<uintptr_t>(placed.target);
      placed.is_on_host = is_on_host;
    }
    double done = 0;
    const Status uploaded =
        UploadSlots(source, slots, *gpu_, [&](double fraction, std::string_view) {
          EXPECT_GE(fraction, done);
          done = fraction;
        });
    ASSERT_TRUE(uploaded.ok()) << uploaded.ToString();
    for (size_t i = 0; i < slots.size(); ++i) {
      const PlacedSlot& placed = slots[i];
      std::vector<std::byte> want = wanted[i];
      std::vector<std::byte> got(placed.num_bytes);
      ASSERT_TRUE(gpu_->Copy(got.data(), placed.target, got.size()).ok());
      if (placed.slot.kind == model::WeightSlot::Kind::kScales)
        for (std::vector<std::byte>* scales : {&want, &got}) UnifyNaNs(scales);
      const auto differs = std::ranges::mismatch(want, got);
      EXPECT_EQ(differs.in1, want.end())
          << placed.slot.name << " of " << DTypeName(config.dtype) << " "
          << model::QuantAlgoName(config.quant_algo) << ": byte " << differs.in1 - want.begin()
          << " of " << want.size() << " is " << static_cast<int>(*differs.in2) << ", not "
          << static_cast<int>(*differs.in1) << (is_on_host ? ", on the host" : "");
    }
  }

  // TinyLlama, as wide as FP8 wants it, with tables of several pieces.
  static TestModel Llama() {
    TestModel model = TinyLlama(/*intermediate_size=*/32);
    model.is_wavy = true;
    model.config["vocab_size"] = 70001;
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
      model.Tensor(name).shape = {70001, 16};
    return model;
  }

  Device* gpu_ = nullptr;
  std::filesystem::path dir_;
};

constexpr QuantAlgo kAlgos[] = {QuantAlgo::kNone, QuantAlgo::kW8A16, QuantAlgo::kW4A16,
                                QuantAlgo::kFp8PerChannelPerToken};

TEST_F(UploadTest, Float32FilesAreConvertedAndQuantisedAsOnTheHost) {
  Llama().Write(dir_ / "hf");
  for (const QuantAlgo algo : kAlgos) {
    ExpectSame(dir_ / "hf", {.dtype = DType::kBF16, .quant_algo = algo});
    ExpectSame(dir_ / "hf", {.dtype = DType::kF16, .quant_algo = algo});
  }
  ExpectSame(dir_ / "hf", {.dtype = DType::kF32});
  // Groups are made on the host.
  ExpectSame(dir_ / "hf",
             {.dtype = DType::kBF16, .quant_algo = QuantAlgo::kW4A16Gptq, .group_size = 16});
}

TEST_F(UploadTest, CheckpointsOfEveryDTypeMappingAndQuantisation) {
  Llama().Write(dir_ / "hf");
  int n = 0;
  for (const char* dtype : {"float16", "bfloat16"})
    for (const int tp_size : {1, 2})
      for (const QuantAlgo algo : kAlgos) {
        const auto checkpoint = dir_ / ("checkpoint" + std::to_string(n++));
        const Status converted = Convert({.model_dir = dir_ / "hf",
                                          .output_dir = checkpoint,
                                          .dtype = dtype,
                                          .quant_algo = algo,
                                          .tp_size = tp_size});
        ASSERT_TRUE(converted.ok()) << converted.ToString();
        ExpectSame(checkpoint, {.dtype = {}, .quant_algo = {}});
        if (algo != QuantAlgo::kNone) continue;
        for (const QuantAlgo to : kAlgos)
          ExpectSame(checkpoint, {.dtype = DType::kBF16, .quant_algo = to});
        ExpectSame(checkpoint, {.dtype = DType::kF32});
      }
}

// As upstream writes them: scales of groups in the model's dtype, which float32 holds.
TEST_F(UploadTest, ScalesOfGroupsInSixteenBits) {
  Llama().Write(dir_ / "hf");
  const auto checkpoint = dir_ / "checkpoint";
  const Status converted = Convert({.model_dir = dir_ / "hf",
                                    .output_dir = checkpoint,
                                    .dtype = "float16",
                                    .quant_algo = QuantAlgo::kW4A16Gptq,
                                    .group_size = 16});
  ASSERT_TRUE(converted.ok()) << converted.ToString();
  const auto path = checkpoint / artifact::RankFileName(0);
  const std::string bytes = *ReadFile(path);
  const auto tensors = artifact::ParseSafetensors(std::as_bytes(std::span(bytes)), path.string());
  ASSERT_TRUE(tensors.ok()) << tensors.status().ToString();
  const auto is_scales = [](const artifact::StoredTensor& tensor) {
    return tensor.name.ends_with(".weights_scaling_factor");
  };
  std::vector<artifact::TensorSpec> specs;
  for (const artifact::StoredTensor& tensor : *tensors)
    specs.push_back({tensor.name, is_scales(tensor) ? DType::kF16 : tensor.dtype, tensor.shape});
  auto writer = artifact::SafetensorsWriter::Create(path, specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  int num_scales = 0;
  for (const artifact::StoredTensor& tensor : *tensors) {
    const int64_t size = tensor.shape.num_elements();
    std::vector<Float16> halves;
    for (int64_t i = 0; is_scales(tensor) && i < size; ++i)
      halves.push_back(Float16::FromFloat(LoadFloat(tensor.data.data(), tensor.dtype, i)));
    num_scales += halves.empty() ? 0 : 1;
    ASSERT_TRUE(
        writer->Append(halves.empty() ? tensor.data : std::as_bytes(std::span(halves))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(num_scales, 5);
  ExpectSame(checkpoint, {.dtype = {}, .quant_algo = {}});
}

// A GGUF file's table, whose blocks the host widens.
TEST_F(UploadTest, TablesInBlocks) {
  TestModel model = Llama();
  model.config["vocab_size"] = 70000;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    model.Tensor(name).shape = {70000, 16};
  model.Write(dir_ / "hf");
  const auto source = OpenWeightSource(dir_ / "hf", {.dtype = DType::kBF16});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const artifact::BlockCodec& codec = *artifact::FindBlockCodec("Q8_0");
  std::vector<std::byte> blocks(size_t{70000} * 16 / 32 * static_cast<size_t>(codec.num_bytes));
  const Float16 scale = Float16::FromFloat(0.25F);
  for (size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = static_cast<std::byte>(i / static_cast<size_t>(codec.num_bytes) + 7 * i);
  for (size_t i = 0; i < blocks.size(); i += static_cast<size_t>(codec.num_bytes))
    std::memcpy(&blocks[i], &scale, sizeof(scale));
  const artifact::StoredTensor& packed =
      (*source)->read_tensors.emplace_back(artifact::StoredTensor{
          .name = "packed", .shape = {70000, 16}, .data = blocks, .codec = &codec});
  for (auto& [name, recipe] : (*source)->recipes)
    if (recipe.shape == Shape{70000, 16}) recipe.parts.front().tensor = &packed;
  ExpectSame(**source);
}

TEST_F(UploadTest, HeadsInFp8) {
  TestModel model = Llama();
  model.config["vocab_size"] = 70000;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"})
    model.Tensor(name).shape = {70000, 16};
  model.Write(dir_ / "hf");
  ExpectSame(dir_ / "hf", {.dtype = DType::kBF16,
                           .quant_algo = QuantAlgo::kFp8PerChannelPerToken,
                           .quantize_lm_head = true});
}

TEST_F(UploadTest, TransposedFiles) {
  TinyGpt2().Write(dir_ / "hf");
  for (const QuantAlgo algo : {QuantAlgo::kNone, QuantAlgo::kW8A16, QuantAlgo::kW4A16})
    ExpectSame(dir_ / "hf", {.dtype = DType::kF16, .quant_algo = algo});
}

// What a GPU quantises for an engine file is what the host would have written.
TEST_F(UploadTest, EngineFilesAreThoseOfTheHost) {
  Llama().Write(dir_ / "hf");
  const auto host = Device::Cpu(2);
  for (const QuantAlgo algo :
       {QuantAlgo::kW8A16, QuantAlgo::kW4A16, QuantAlgo::kFp8PerChannelPerToken}) {
    const auto source = OpenWeightSource(dir_ / "hf", {.dtype = DType::kBF16, .quant_algo = algo});
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    const int64_t free_bytes = static_cast<int64_t>(gpu_->ledger().free_bytes());
    int uploads = 0;
    const auto write = [&](const char* name, Device* gpu) {
      const Status written = WriteEngineFile(
          **source, dir_ / name, DeviceKind::kCuda, *host, gpu, [&](double, std::string_view) {
            uploads += free_bytes > static_cast<int64_t>(gpu_->ledger().free_bytes());
          });
      EXPECT_TRUE(written.ok()) << written.ToString();
      return ReadFile(dir_ / name).value();
    };
    const std::string want = write("host.engine", nullptr);
    EXPECT_EQ(uploads, 0);
    EXPECT_EQ(write("gpu.engine", gpu_), want) << model::QuantAlgoName(algo);
    EXPECT_GT(uploads, 0) << "the GPU was used";
    EXPECT_EQ(static_cast<int64_t>(gpu_->ledger().free_bytes()), free_bytes);
  }
}

TEST_F(UploadTest, RowsOfZerosAndOfWhatIsNoNumber) {
  const TestModel model = Llama();
  std::filesystem::create_directories(dir_ / "hf");
  ASSERT_TRUE(WriteFile(dir_ / "hf/config.json", model.config.dump()).ok());
  auto writer = artifact::SafetensorsWriter::Create(dir_ / "hf/model.safetensors", model.tensors);
  ASSERT_TRUE(writer.ok());
  for (const artifact::TensorSpec& tensor : model.tensors) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()), 0.0F);
    if (tensor.name.ends_with("q_proj.weight")) {
      values[0] = 1e-9F;  // far below the floor of FP8's scale
      values[16] = std::numeric_limits<float>::infinity();
      values[32] = 448;
      values[33] = -0.3F;
      values[48] = 1e30F;  // beyond float16
    }
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  for (const QuantAlgo algo : kAlgos)
    ExpectSame(dir_ / "hf", {.dtype = DType::kBF16, .quant_algo = algo});
}

TEST_F(UploadTest, AFileThatIsCutShortWhileItIsReadIsAnError) {
  Llama().Write(dir_ / "hf");
  const auto source = OpenWeightSource(dir_ / "hf", {.dtype = DType::kBF16});
  ASSERT_TRUE(source.ok());
  std::filesystem::resize_file(dir_ / "hf/model.safetensors", 1 << 20);
  const auto buffer = Buffer::Allocate(*gpu_, "weights", size_t{70001} * 16 * 2);
  ASSERT_TRUE(buffer.ok());
  model::DecoderWeights unused;
  const std::vector<PlacedSlot> table = {
      {model::WeightSlots((*source)->config, unused)[0], buffer->data(), buffer->size()}};
  const Status status = UploadSlots(**source, table, *gpu_, {});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("model.safetensors: was cut short"));
}

// A GPU makes the numbers that the CPU makes.
TEST_F(UploadTest, RandomWeightsAreThoseOfTheCpu) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 300;
  config.hidden_size = 256;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.intermediate_size = 96;
  config.max_position_embeddings = 64;
  const auto cpu = Device::Cpu(2);
  for (const DType dtype : {DType::kF16, DType::kBF16})
    for (const QuantAlgo algo : {QuantAlgo::kNone, QuantAlgo::kW8A16, QuantAlgo::kW4A16}) {
      config.dtype = dtype;
      config.quant_algo = algo;
      const auto want = Random(config, {}, 5, *cpu);
      const auto got = Random(config, {}, 5, *gpu_);
      ASSERT_TRUE(want.ok()) << want.status().ToString();
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      const ops::Weight& on_gpu = (*got)->weights.layers[1].proj;
      std::vector<std::byte> bytes(ops::WeightBytes(on_gpu.dtype, on_gpu.layout, 256, 96));
      ASSERT_TRUE(gpu_->Copy(bytes.data(), on_gpu.data, bytes.size()).ok());
      std::vector<float> scales(256);
      if (on_gpu.scales != nullptr) {
        ASSERT_TRUE(gpu_->Copy(scales.data(), on_gpu.scales, 256 * sizeof(float)).ok());
      }
      ops::Weight copy = on_gpu;
      copy.data = bytes.data();
      copy.scales = scales.data();
      for (const int64_t row : {0, 100, 255}) {
        float a[96];
        float b[96];
        ops::UnpackWeightRow((*want)->weights.layers[1].proj, row, a);
        ops::UnpackWeightRow(copy, row, b);
        EXPECT_THAT(b, testing::ElementsAreArray(a)) << DTypeName(on_gpu.dtype) << " row " << row;
      }
      float norm = 0;
      ASSERT_TRUE(gpu_->Copy(&norm, (*got)->weights.final_norm_weight.data, sizeof(norm)).ok());
      EXPECT_EQ(norm, 1.0F);
    }
  config.dtype = DType::kBF16;
  config.quant_algo = QuantAlgo::kFp8PerChannelPerToken;
  const auto fp8 = Random(config, {}, 5, *gpu_);
  ASSERT_TRUE(fp8.ok()) << fp8.status().ToString();
  const ops::Weight& qkv = (*fp8)->weights.layers[0].qkv;
  EXPECT_EQ(qkv.dtype, DType::kF8E4M3);
  Float8E4M3 codes[256];
  float scale = 0;
  ASSERT_TRUE(gpu_->Copy(codes, qkv.data, sizeof(codes)).ok());
  ASSERT_TRUE(gpu_->Copy(&scale, qkv.scales, sizeof(scale)).ok());
  double squares = 0;
  for (const Float8E4M3 code : codes) squares += std::pow(code.ToFloat() * scale, 2);
  EXPECT_NEAR(squares, 1.0, 0.3);  // variance 1 / width
}

// What is not there is known before anything is read.
TEST_F(UploadTest, WeightsThatDoNotFitSaySo) {
  const Status status = AllocateWeights(*gpu_, uint64_t{1} << 50).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("the weights take 1048576.00 GiB, "));
  EXPECT_THAT(status.message(), HasSubstr("--use-fp8-rowwise"));
}

}  // namespace
}  // namespace inflight::builder
