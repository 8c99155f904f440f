// SPDX-License-Identifier: Apache-2.0
#include "speculation_fixture.h"

#include <filesystem>
#include <utility>

#include "artifact/safetensors.h"
#include "artifact/tensor_set.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/eagle_files.h"
#include "constants.h"
#ifdef INFLIGHT_GOLDEN_CUDA
#include "tensor/test_gpu.h"
#include "widened_head.h"
#endif

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;

// The model with heads that were never trained: blocks of zeros before the model's own lm_head,
// so that each says the next token once more.
Result<std::shared_ptr<const model::Engine>> OpenWithMedusa(DType dtype, Device& device) {
  constexpr int kNumHeads = 2;
  const fs::path dir = fs::path(testing::TempDir()) / "speculation_medusa";
  fs::remove_all(dir);
  fs::create_directories(dir / "heads");
  RETURN_IF_ERROR(WriteFile(dir / "heads/config.json", R"({"medusa_num_heads": 2})"));
  ASSIGN_OR_RETURN(const artifact::TensorSet stored,
                   artifact::TensorSet::OpenModel(INFLIGHT_DEMO_MODEL));
  const artifact::StoredTensor& table = *stored.Find("model.embed_tokens.weight");
  const int64_t width = table.shape[1];
  std::vector<artifact::TensorSpec> specs;
  for (int head = 0; head < kNumHeads; ++head) {
    const std::string name = std::to_string(head);
    specs.push_back({name + ".0.linear.weight", table.dtype, {width, width}});
    specs.push_back({name + ".0.linear.bias", table.dtype, {width}});
    specs.push_back({name + ".1.weight", table.dtype, table.shape});
  }
  ASSIGN_OR_RETURN(auto writer, artifact::SafetensorsWriter::Create(
                                    dir / "heads/medusa_lm_head.safetensors", specs));
  const std::vector<std::byte> zeros(BytesOf(table.dtype, width * (width + 1)));
  for (int head = 0; head < kNumHeads; ++head) {
    RETURN_IF_ERROR(writer.Append(zeros));
    RETURN_IF_ERROR(writer.Append(table.data));
  }
  RETURN_IF_ERROR(writer.Finish());
  RETURN_IF_ERROR(builder::Convert({.model_dir = INFLIGHT_DEMO_MODEL,
                                    .output_dir = dir / "checkpoint",
                                    .dtype = std::string(DTypeName(dtype)),
                                    .medusa = {.dir = dir / "heads"}}));
  auto opened = builder::Open(dir / "checkpoint", device);
  fs::remove_all(dir);
  return opened;
}

void AddHeads(const model::Engine& engine, Device& device,
              std::vector<SpeculationTest::Proposer>* proposers) {
  for (const std::string version : {"v1", "v3"}) {
    fs::path dir = fs::path(INFLIGHT_EAGLE_GOLDEN_DATA) / version;
#ifdef INFLIGHT_GOLDEN_CUDA
    const fs::path widened = fs::path(testing::TempDir()) / ("speculation_" + version);
    const Status written = WriteWidenedHead(dir, widened);
    ASSERT_TRUE(written.ok()) << written.ToString();
    dir = widened;
#endif
    const auto head = builder::OpenEagleHead(dir, engine.config, device);
    ASSERT_TRUE(head.ok()) << head.status().ToString();
    proposers->push_back(
        {.name = version, .source = DraftSource::kEagle, .draft = {.eagle = *head}});
  }
  auto opened = OpenWithMedusa(engine.config.dtype, device);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  proposers->push_back(
      {.name = "Medusa", .source = DraftSource::kMedusa, .engine = *std::move(opened)});
}

}  // namespace

void SpeculationTest::SetUp() {
  DType dtype = DType::kF32;
#ifdef INFLIGHT_GOLDEN_CUDA
  NEED_TEST_GPU();
  device = std::shared_ptr<Device>(TestGpu().value().get(), [](Device*) {});
  dtype = DType::kBF16;
#endif
  auto opened = builder::Open(INFLIGHT_DEMO_MODEL, *device, {.dtype = dtype, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  engine = *std::move(opened);
  options.block_size = kBlockSize;
  options.max_batch_size = 8;
  options.max_kv_tokens = 4096;
  options.deterministic = true;
}

Sinks SpeculationTest::Run(const ExecutorOptions& with, const std::vector<Request>& requests) {
  EvenClock even_clock;
  const auto executor =
      MakeExecutor(engine, *device, with, {}, draft, has_even_clock ? even_clock : Clock::System());
  Sinks sinks = RunAll<RowsSink>(*executor, requests);
  executor->Shutdown(0);
  stats = executor->stats();
  return sinks;
}

void SpeculationTest::ExpectSame(const ExecutorOptions& with, const std::vector<Request>& requests,
                                 const Sinks& expected, bool alone) {
  Sinks actual;
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  if (alone) {
    for (const Request& request : requests) {
      actual.push_back(Run(with, {request})[0]);
      num_drafted += stats.tokens_drafted, num_accepted += stats.drafts_accepted;
    }
  } else {
    actual = Run(with, requests);
    num_drafted = stats.tokens_drafted, num_accepted = stats.drafts_accepted;
  }
  EXPECT_GT(num_accepted, 0);
  EXPECT_GE(num_drafted, num_accepted);  // how many are tried depends on what steps take
  int told_drafted = 0;
  int told_accepted = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
      ExpectEqual(*actual[i], *expected[i], i);
    told_drafted += actual[i]->last.num_draft_tokens;
    told_accepted += actual[i]->last.num_accepted_draft_tokens;
  }
  EXPECT_EQ(told_drafted, num_drafted);
  EXPECT_EQ(told_accepted, num_accepted);
}

void SpeculationTest::ExpectSameLogProbs(const RowsSink& actual, const RowsSink& expected) const {
  for (size_t i = 0; i < actual.log_probs.size(); ++i) {
    if (device->kind() == DeviceKind::kCpu)
      EXPECT_EQ(actual.log_probs[i], expected.log_probs[i]);
    else
      EXPECT_NEAR(actual.log_probs[i], expected.log_probs[i], 1e-5);
  }
}

void SpeculationTest::FindProposers(std::vector<Proposer>* proposers) const {
  auto opened = builder::Open(INFLIGHT_DEMO_MODEL "-draft", *device,
                              {.dtype = engine->config.dtype, .limits = {}});
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  *proposers = {
      {.name = "n-grams", .source = DraftSource::kNgram},
      {.name = "a model", .source = DraftSource::kModel, .draft = {.model = *std::move(opened)}},
      {.name = "texts", .source = DraftSource::kSuffix}};
  AddHeads(*engine, *device, proposers);
}

}  // namespace inflight::golden
