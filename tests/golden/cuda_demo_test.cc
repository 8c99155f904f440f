// SPDX-License-Identifier: Apache-2.0
// The demo model on a GPU beside the CPU's float32, over held-out text: logits within what rounding
// may change, and greedy answers equal up to where the two best logits lie closer than that.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "artifact/safetensors.h"
#include "builder/accuracy.h"
#include "constants.h"
#include "golden_reference.h"
#include "inflight/tokenizer.h"
#include "paged_model.h"
#include "run_requests.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"
#include "worse.h"

namespace inflight::golden {
namespace {

using EnginePtr = std::shared_ptr<const model::Engine>;
using Logits = std::vector<std::vector<float>>;

constexpr int kNumTexts = 24;
constexpr int kNumNoiseDraws = 4;
constexpr float kNoise = 1e-3F;

Device& Cpu() {
  static auto* cpu = Device::Cpu().release();
  return *cpu;
}

EnginePtr Open(const std::filesystem::path& dir, Device& device, DType dtype) {
  auto engine = builder::Open(dir, device, {.dtype = dtype, .limits = std::nullopt});
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  CHECK(engine.ok());
  return *std::move(engine);
}

// Of every position.
Logits LogitsOf(const EnginePtr& engine, Device& device, std::span<const TokenId> ids) {
  const ops::ShapeClass shape = model::KernelShape(engine->config);
  const ops::OpTable table = device.kind() == DeviceKind::kCuda
                                 ? ops::CudaOpTables(shape, device).at(0)
                                 : ops::CpuOpTables(shape).at(0);
  PagedModel model(engine, table, device, 1, kBlockSize);
  const Piece piece{0, ids};
  return model.Step({&piece, 1}, /*last_only=*/false);
}

float LargestDifference(const Logits& a, const Logits& b) {
  float worst = 0;
  for (size_t t = 0; t < a.size(); ++t)
    for (size_t v = 0; v < a[t].size(); ++v) worst = Worse(worst, std::abs(a[t][v] - b[t][v]));
  return worst;
}

// The model with normal relative noise on all weights, in float32.
void WriteNoisy(const std::filesystem::path& from, const std::filesystem::path& to, int seed) {
  const auto set = artifact::TensorSet::OpenFile(from / "model.safetensors");
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  std::vector<artifact::TensorSpec> specs;
  for (const artifact::StoredTensor& tensor : set->tensors())
    specs.push_back({tensor.name, DType::kF32, tensor.shape});
  std::filesystem::create_directories(to);
  auto writer = artifact::SafetensorsWriter::Create(to / "model.safetensors", specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  std::mt19937 random(static_cast<unsigned>(seed));
  std::normal_distribution<float> normal;
  for (const artifact::StoredTensor& tensor : set->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = LoadFloat(tensor.data.data(), tensor.dtype, static_cast<int64_t>(i)) *
                  (1 + kNoise * normal(random));
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  std::filesystem::copy_file(from / "config.json", to / "config.json");
}

std::filesystem::path DemoDir() { return INFLIGHT_DEMO_MODEL; }

const EnginePtr& CpuEngine() {
  static auto& engine = *new EnginePtr(Open(DemoDir(), Cpu(), DType::kF32));
  return engine;
}

// A question or story with its answer, and how far float32's logits of it move under noise.
struct Text {
  std::vector<TokenId> prompt;
  std::vector<TokenId> ids;  // with its answer
  Logits logits;
  float noise_gain = 0;
};

std::vector<Text> ReadTexts() {
  const auto tokenizer = Tokenizer::Load(DemoDir());
  CHECK(tokenizer.ok());
  std::vector<Text> texts;
  std::ifstream file(DemoDir() / "heldout_text.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  CHECK(!lines.empty());
  for (size_t i = 0; i < lines.size(); i += std::max<size_t>(1, lines.size() / kNumTexts)) {
    const auto json = nlohmann::json::parse(lines[i]);
    const std::string question = json.at("text_input");
    const std::string answer = json.at("expected");
    Text text;
    text.prompt = tokenizer.value()->Encode(question, /*add_special_tokens=*/true).value();
    text.ids = tokenizer.value()->Encode(question + answer, /*add_special_tokens=*/true).value();
    text.logits = LogitsOf(CpuEngine(), Cpu(), text.ids);
    texts.push_back(std::move(text));
  }
  const auto noisy_dir =
      std::filesystem::path(testing::TempDir()) / ("noisy_" + std::to_string(getpid()));
  for (int draw = 0; draw < kNumNoiseDraws; ++draw) {
    std::filesystem::remove_all(noisy_dir);
    WriteNoisy(DemoDir(), noisy_dir, draw);
    const EnginePtr noisy = Open(noisy_dir, Cpu(), DType::kF32);
    for (Text& text : texts)
      text.noise_gain =
          std::max(text.noise_gain,
                   LargestDifference(LogitsOf(noisy, Cpu(), text.ids), text.logits) / kNoise);
  }
  std::filesystem::remove_all(noisy_dir);
  return texts;
}

const std::vector<Text>& Texts() {
  static auto& texts = *new std::vector<Text>(ReadTexts());
  return texts;
}

class CudaDemoReportTest : public testing::Test {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    ASSERT_TRUE(std::filesystem::exists(DemoDir() / "model.safetensors")) << DemoDir();
  }
};

class CudaDemoTest : public CudaDemoReportTest, public testing::WithParamInterface<DType> {
 protected:
  void SetUp() override {
    CudaDemoReportTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure())
      gpu_engine_ = Open(DemoDir(), *TestGpu().value(), GetParam());
  }

  // What rounding may change in a logit, u * noise_gain * k. Rounding to nearest is noise of at
  // most u / sqrt(3), and of a linear its input, its output and the residual that it joins are
  // rounded, besides them rotated heads and weights of softmax: sqrt(5 / 3) u, where the noise on
  // its weights that noise_gain was measured with counts 1. Twice that for draws worse than the
  // measured ones.
  static float BoundOf(const Text& text) {
    const float unit_roundoff = GetParam() == DType::kBF16 ? 0x1p-8F : 0x1p-11F;
    return 2 * std::sqrt(5.0F / 3) * unit_roundoff * text.noise_gain;
  }

  EnginePtr gpu_engine_;
};

TEST_P(CudaDemoTest, LogitsAreTheCpus) {
  float largest = 0;
  for (const Text& text : Texts()) {
    const Logits logits = LogitsOf(gpu_engine_, *TestGpu().value(), text.ids);
    ASSERT_EQ(logits.size(), text.logits.size());
    const float error = LargestDifference(logits, text.logits);
    EXPECT_LE(error, BoundOf(text)) << "text of " << text.ids.size() << " tokens";
    largest = std::max(largest, error / BoundOf(text));
  }
  std::cout << Texts().size() << " texts, at most " << largest << " of the bound\n";
}

TEST_P(CudaDemoTest, GreedyAnswersAreTheCpusButForNearTies) {
  std::vector<Request> requests;
  for (const Text& text : Texts()) {
    Request request;
    request.input_ids = text.prompt;
    request.max_tokens = 60;
    request.end_ids = CpuEngine()->config.end_ids;
    requests.push_back(std::move(request));
  }
  ExecutorOptions options;
  options.max_kv_tokens = 8192;
  const auto want = RunAll(*MakeExecutor(CpuEngine(), Cpu(), options), requests);
  const auto got = RunAll(*MakeExecutor(gpu_engine_, *TestGpu().value(), options), requests);
  int num_equal = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(want[i]->last.status.ok() && got[i]->last.status.ok());
    ASSERT_FALSE(want[i]->ids.empty());
    if (want[i]->ids == got[i]->ids) {
      ++num_equal;
      continue;
    }
    const auto [want_id, got_id] = std::ranges::mismatch(want[i]->ids, got[i]->ids);
    const bool is_whole = want_id != want[i]->ids.end() && got_id != got[i]->ids.end();
    ASSERT_TRUE(is_whole) << "request " << i << ": one answer ends where the other goes on";
    std::vector<TokenId> before = requests[i].input_ids;
    before.insert(before.end(), want[i]->ids.begin(), want_id);
    const std::vector<float> logits = LogitsOf(CpuEngine(), Cpu(), before).back();
    EXPECT_LE(logits[static_cast<size_t>(*want_id)] - logits[static_cast<size_t>(*got_id)],
              2 * BoundOf(Texts()[i]))
        << "request " << i << ", token " << want_id - want[i]->ids.begin();
  }
  std::cout << num_equal << " of " << requests.size() << " answers are equal\n";
  EXPECT_GT(num_equal, 0);
}

// What `inflight build --report` measures: fewer bits cost less than a hundredth of perplexity.
TEST_F(CudaDemoReportTest, EveryStoredFormKeepsThePerplexity) {
  std::vector<builder::ScoredText> scored;
  for (const Text& text : Texts())
    scored.push_back({.ids = text.ids, .first_scored = text.prompt.size()});
  const auto report =
      builder::MeasureAccuracy(DemoDir(), {}, scored, Cpu(), TestGpu().value().get());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  std::cout << report->ToString();
  std::vector<std::string> names;
  for (const builder::Accuracy& form : report->forms) {
    names.push_back(form.name);
    EXPECT_NEAR(form.perplexity, report->forms[0].perplexity, 0.01 * report->forms[0].perplexity)
        << form.name;
    const bool is_exact = &form == &report->forms[0];
    EXPECT_EQ(form.logit_max == 0, is_exact) << form.name;
  }
  const std::vector<std::string> want = {"float32", "float16", "bfloat16", "int8",  "int4",
                                         "fp8",     "fp8_f16", "bf16_kv",  "fp8_kv"};
  EXPECT_EQ(names, want) << "the head is the embedding table, which stays as it is";
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaDemoTest, testing::Values(DType::kBF16, DType::kF16),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

}  // namespace
}  // namespace inflight::golden
