// SPDX-License-Identifier: Apache-2.0
// A head of EAGLE on a GPU, step by step beside its model, whose answers are given: whatever drafts
// were planned, and whenever pairs were computed, keys and values are those of a head that had the
// whole text as a prompt, and so are the trees. What a prompt's are worth the CPU and PyTorch judge
// (cuda_eagle_test.cc, eagle_golden_test.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "artifact/tensor_set.h"
#include "builder/builder.h"
#include "builder/eagle_files.h"
#include "executor/cuda/eagle_kernels.h"
#include "executor/cuda/step_state.h"
#include "executor/cuda/tree_model.h"
#include "executor/memory_plan.h"
#include "golden_reference.h"
#include "model/decoder.h"
#include "ops/backend.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"
#include "widened_head.h"

namespace inflight::golden {
namespace {

namespace fs = std::filesystem;
using executor::cuda::kEagleRing;
using executor::cuda::StepShape;
using executor::cuda::StepState;
using executor::cuda::TreeModel;
using scheduler::PlanRow;
using scheduler::SlotId;

constexpr int kNumPrompt = 9;
constexpr int kJudge = 3;  // the slot whose text is a prompt
constexpr int kBlock = 16;
constexpr int kBlocksPerSlot = 8;
// What keys and values of bfloat16 may differ by where products had other numbers of rows.
constexpr float kKvTolerance = 0.04F;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) CHECK_EQ(result.status().ToString(), "OK");
  return *std::move(result);
}
void Must(const Status& status) { CHECK_EQ(status.ToString(), "OK"); }

// A decode row: its slot, and how many nodes its tree has.
struct Row {
  SlotId slot = 0;
  int num_nodes = 0;
};

// Of a version, and with graphs or without.
class CudaEagleFollowTest : public testing::TestWithParam<std::pair<int, bool>> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
    const std::string name = "v" + std::to_string(GetParam().first);
    const fs::path golden = INFLIGHT_EAGLE_GOLDEN_DATA;
    const artifact::TensorSet reference =
        Must(artifact::TensorSet::OpenFile(golden / (name + ".safetensors")));
    text_ = PromptAndGreedy(reference);
    while (text_.size() < kBlocksPerSlot * kBlock + 1) text_.push_back(text_[text_.size() / 2]);
    engine_ =
        Must(builder::Open(INFLIGHT_DEMO_MODEL, *device_, {.dtype = DType::kBF16, .limits = {}}));
    const fs::path dir = fs::path(testing::TempDir()) / ("cuda_eagle_follow_" + name);
    Must(WriteWidenedHead(golden / name, dir));
    head_ = Must(builder::OpenEagleHead(dir, engine_->config, *device_));
    fs::remove_all(dir);
    MakeModels();
  }

  void MakeModels() {
    const model::ModelConfig& config = engine_->config;
    ExecutorOptions options = {.max_batch_size = 4, .max_kv_tokens = 1024, .block_size = kBlock};
    options.drafts = DraftSource::kEagle;
    plan_ = Must(executor::PlanMemory(config, engine_->limits, device_->kind(),
                                      engine_->weight_bytes, /*weights_are_taken=*/true, options,
                                      device_->FreeBytes(), {.eagle = &head_->config}));
    const auto ops_of = [this](const model::ModelConfig& of) {
      return Must(ops::FindOps(*device_, model::KernelShape(of), {}, ops::OpChoice::kFixed));
    };
    stream_ = Must(ops::MakeStream(*device_, model::KernelShape(config), plan_.max_num_tokens,
                                   plan_.max_logits() + executor::cuda::kFillRows,
                                   ops::OpChoice::kFixed));
    decoder_ = Must(model::Decoder::Create(engine_, ops_of(config), *device_, plan_.max_num_tokens,
                                           plan_.max_logits()));
    state_ = Must(StepState::Create(plan_, *device_));
    kv_ = Must(executor::KvStorage::CreateGroups(
        executor::KvShape(config, plan_.block_size, DeviceKind::kCuda),
        executor::KvGroupSizes(config, plan_), *device_, /*can_release=*/false));
    trees_ = Must(executor::cuda::MakeTreeModel(engine_, head_, ops_of(head_->config.layer), plan_,
                                                *decoder_, *stream_, *state_, *device_));
    const ops::KvCacheView& own = *trees_->kv();
    const std::vector<std::byte> zeros(static_cast<size_t>(own.num_blocks) * own.block_bytes());
    Must(device_->Copy(own.data, zeros.data(), zeros.size()));
    Must(trees_->WarmUp(GetParam().second, /*records_all=*/false, logging::Level::kInfo));
    Must(stream_->Synchronize());
  }

  cudaStream_t handle() { return ops::cuda::AsCuda(*stream_).handle(); }

  template <typename T>
  std::vector<T> Read(const T* data, size_t count) {
    Must(stream_->Synchronize());
    std::vector<T> values(count);
    Must(device_->Copy(values.data(), data, count * sizeof(T)));
    return values;
  }
  int NumTokens(SlotId slot) { return Read(state_->slots().num_tokens + slot, 1)[0]; }

  // Each slot has the text's first tokens as its prompt; beside decode rows.
  void Prompts(const std::vector<SlotId>& slots, int num_tokens = kNumPrompt,
               const std::vector<Row>& beside = {}) {
    *step_ = {};
    for (const Row& row : beside) Add(RowOf(row));
    for (const SlotId slot : slots) {
      const auto tokens = state_->host_tokens(slot);
      std::copy_n(text_.begin(), num_tokens, tokens.begin());
      Must(trees_->SetUp({.slot = slot}));
      Must(state_->SetUpSlot(slot, num_tokens, /*prompt_table=*/nullptr, handle()));
      step_->updates[static_cast<size_t>(step_->num_updates++)] = {
          .slot = slot, .num_blocks = kBlocksPerSlot, .offset = step_->num_block_ids};
      for (int b = 0; b < kBlocksPerSlot; ++b)
        step_->block_ids[static_cast<size_t>(step_->num_block_ids++)] = slot * kBlocksPerSlot + b;
      Add({.slot = slot, .num_query_tokens = num_tokens, .is_prefill = 1, .yields = 1});
    }
    Launch(*step_);
  }

  void Add(const PlanRow& row) {
    step_->rows[static_cast<size_t>(step_->num_rows++)] = row;
    step_->num_decode_rows += row.is_prefill != 0 ? 0 : 1;
    step_->num_tokens += row.num_query_tokens;
  }
  static PlanRow RowOf(const Row& row) {
    return {.slot = row.slot,
            .num_query_tokens = 1 + row.num_nodes,
            .yields = 1,
            .num_draft_tokens = static_cast<uint8_t>(row.num_nodes)};
  }

  void Decode(const std::vector<Row>& rows) {
    *step_ = {};
    for (const Row& row : rows) Add(RowOf(row));
    Launch(*step_);
  }

  // As a backend does, but that the text goes on as it is: so a tree's path is accepted as far as
  // it is the text.
  void Launch(const scheduler::StepPlan& plan) {
    Must(trees_->Prepare(plan));
    const StepShape shape = state_->Pack(plan, &state_->arena(num_steps_));
    Must(trees_->Draft(plan, num_steps_));
    Must(state_->Begin(shape, handle()));
    model::Batch batch = state_->BatchOf(shape);
    batch.kept = trees_->residuals();
    Must(decoder_->Forward(batch, kv_.view(), *stream_).status());
    const auto num_logits = static_cast<size_t>(shape.num_logits);
    const std::vector<int32_t> positions = Read(state_->tensors().logit_positions, num_logits);
    std::vector<int32_t> drawn;
    for (const int32_t position : positions)
      drawn.push_back(text_.at(static_cast<size_t>(position)));
    Must(device_->Copy(state_->tensors().sampled_ids, drawn.data(), num_logits * sizeof(int32_t)));
    Must(trees_->Settle(kv_, decoder_->States(), shape));
    Must(state_->End(shape, handle()));
    ++num_steps_;
  }

  // The tree that the next step of the slot would judge.
  std::vector<TokenId> TreeOf(SlotId slot) {
    const size_t num_nodes = static_cast<size_t>(plan_.draft_tree->size());
    *step_ = {};
    Add(RowOf({slot, plan_.draft_tree->size()}));
    Must(trees_->Prepare(*step_));
    state_->Pack(*step_, &state_->arena(num_steps_));
    Must(trees_->Draft(*step_, num_steps_));
    const executor::cuda::SlotState& slots = state_->slots();
    return Read(slots.tokens + int64_t{slot} * slots.max_tokens + NumTokens(slot), num_nodes);
  }

  // Keys, then values, of the head at a place of a slot.
  std::vector<float> KvAt(SlotId slot, int place) {
    const ops::KvCacheView& view = *trees_->kv();
    const int64_t block = slot * kBlocksPerSlot + place / kBlock + 1;
    const auto elements = static_cast<size_t>(view.block_bytes() / SizeOf(view.dtype));
    const auto* const data = reinterpret_cast<const uint16_t*>(view.Keys(0, block, 0));
    const std::vector<uint16_t> all = Read(data, elements);
    std::vector<float> out;
    for (int head = 0; head < 2 * view.num_kv_heads; ++head)
      for (int i = 0; i < view.row(); ++i)
        out.push_back(LoadFloat(
            all.data(), view.dtype,
            (int64_t{head} * view.block_size + place % view.block_size) * view.row() + i));
    return out;
  }
  float Difference(SlotId a, SlotId b, int place) {
    const std::vector<float> x = KvAt(a, place);
    const std::vector<float> y = KvAt(b, place);
    float most = 0;
    for (size_t i = 0; i < x.size(); ++i)
      most = std::max(most, std::abs(x[i] - y[i]) / std::max(1.0F, std::abs(y[i])));
    return most;
  }

  // As a slot that has the tokens of `slot` as its prompt.
  void ExpectAsOfAPrompt(SlotId slot) {
    const int num_tokens = NumTokens(slot);
    const std::vector<TokenId> tree = TreeOf(slot);
    Prompts({kJudge}, num_tokens - 1);
    ASSERT_EQ(NumTokens(kJudge), num_tokens);
    const std::vector<TokenId> expected = TreeOf(kJudge);
    for (int place = 0; place < num_tokens - 1; ++place)
      EXPECT_LE(Difference(slot, kJudge, place), kKvTolerance) << "place " << place;
    // Rounding may have tokens of nearly equal logits change places.
    int num_equal = 0;
    for (size_t i = 0; i < tree.size(); ++i) num_equal += tree[i] == expected[i] ? 1 : 0;
    EXPECT_EQ(tree[0], expected[0]);
    EXPECT_GE(num_equal, static_cast<int>(tree.size()) * 3 / 4);
  }

  Device* device_ = nullptr;
  std::vector<TokenId> text_;
  std::shared_ptr<const model::Engine> engine_;
  std::shared_ptr<const model::EagleHead> head_;
  executor::MemoryPlan plan_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<StepState> state_;
  executor::KvStorage kv_;
  std::unique_ptr<TreeModel> trees_;
  std::unique_ptr<scheduler::StepPlan> step_ = std::make_unique<scheduler::StepPlan>();
  uint64_t num_steps_ = 0;
};

TEST_P(CudaEagleFollowTest, DraftsAtEveryStep) {
  Prompts({0, 1});
  for (int i = 0; i < 12; ++i) Decode({{0, 15}, {1, i % 15 + 1}});
  EXPECT_GT(NumTokens(0), kNumPrompt + 13) << "some were accepted";
  ExpectAsOfAPrompt(0);
  ExpectAsOfAPrompt(1);
}

TEST_P(CudaEagleFollowTest, DraftsThatBeginLate) {
  for (const int num_plain : {0, 1, 5, 12, 25}) {
    SCOPED_TRACE(num_plain);
    Prompts({0});
    for (int i = 0; i < num_plain; ++i) Decode({{0}});
    ExpectAsOfAPrompt(0);
  }
}

TEST_P(CudaEagleFollowTest, PairsWaitUntilARingIsFull) {
  Prompts({0, 1, kJudge});
  Decode({{1}, {kJudge}});
  for (int i = 1; i < kEagleRing; ++i) Decode({{0}, {1}, {kJudge, 1}});
  const int place = kNumPrompt + 3;
  EXPECT_GT(Difference(1, kJudge, place), kKvTolerance) << "it was computed in vain";
  Decode({{0}, {1}, {kJudge, 1}});  // of slot 1 the ring is full
  EXPECT_LE(Difference(1, kJudge, place), kKvTolerance);
  EXPECT_LE(Difference(0, kJudge, place), kKvTolerance) << "of a ring that is not full, too";
  for (int i = 0; i < 6; ++i) Decode({{0}, {1}});
  ExpectAsOfAPrompt(1);
  ExpectAsOfAPrompt(0);
}

TEST_P(CudaEagleFollowTest, DraftsOnAndOffInTurns) {
  Prompts({0, 1, 2});
  for (int turn = 0; turn < 4; ++turn) {
    for (int i = 0; i < 2 * turn + 1; ++i) Decode({{0, 15}, {1}, {2, i % 2}});
    for (int i = 0; i < 5; ++i) Decode({{0}, {1, 7}, {2}});
  }
  for (const SlotId slot : {0, 1, 2}) {
    SCOPED_TRACE(slot);
    ExpectAsOfAPrompt(slot);
  }
}

// Of who has no row in a step, and of who leaves its slot to another, others may use the blocks.
TEST_P(CudaEagleFollowTest, WhoLeavesLeavesItsPairs) {
  Prompts({0, 1, kJudge});
  for (int i = 0; i < 6; ++i) Decode({{0}, {1}, {kJudge, 1}});
  const int place = kNumPrompt + 2;
  Decode({{1}, {kJudge, 1}});
  EXPECT_LE(Difference(0, kJudge, place), kKvTolerance);
  for (int i = 0; i < 4; ++i) Decode({{1}, {kJudge, 1}});
  EXPECT_GT(Difference(1, kJudge, kNumPrompt + 8), kKvTolerance);
  Must(trees_->SetUp({.slot = 1}));
  EXPECT_LE(Difference(1, kJudge, kNumPrompt + 8), kKvTolerance);
}

// A step of a prompt beside decode rows keeps these waiting.
TEST_P(CudaEagleFollowTest, PromptsBesideDecodeRows) {
  Prompts({0, 2});
  for (int i = 0; i < 4; ++i) Decode({{0}, {2, 3}});
  Prompts({1}, kNumPrompt, {{0}, {2, 15}});
  Decode({{0}, {1}, {2}});
  ExpectAsOfAPrompt(2);
  ExpectAsOfAPrompt(0);
  ExpectAsOfAPrompt(1);
}

INSTANTIATE_TEST_SUITE_P(Versions, CudaEagleFollowTest,
                         testing::Values(std::pair{1, false}, std::pair{3, false},
                                         std::pair{1, true}, std::pair{3, true}),
                         [](const auto& info) {
                           return "v" + std::to_string(info.param.first) +
                                  (info.param.second ? "_graphs" : "");
                         });

}  // namespace
}  // namespace inflight::golden
