// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs add up and gather columns: against double precision and against what was there, for
// messages of both ways to add up and of many sizes, one call behind another, and from graphs; over
// each other's memory and by NCCL.
#include "executor/cuda/gpu_group.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "base/status_macros.h"
#include "executor/cuda/nccl_library.h"
#include "ops/backend.h"
#include "ops/cuda/cuda_stream.h"
#include "rank_gpus.h"
#include "tensor/element.h"
#include "worse.h"

namespace inflight::executor::cuda {
namespace {

template <typename T>
T Must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  CHECK(result.ok());
  return *std::move(result);
}

constexpr size_t kSharedBytes = size_t{48} << 20;

struct GroupCase {
  int num_ranks = 0;
  const char* collectives = "peers";  // as of INFLIGHT_CUDA_COLLECTIVES
  int num_stages = 1;
};
constexpr size_t kStepBytes = size_t{4} << 20;  // of stages

class GpuGroupTest : public testing::TestWithParam<GroupCase> {
 protected:
  struct Rank {
    Device* device = nullptr;
    ops::OpTable ops;
    std::unique_ptr<ops::cuda::CudaStream> stream;
    Buffer memory;
  };

  void SetUp() override {
    NEED_RANK_GPUS(num_ranks());
    const std::vector<Device*> gpus = RankGpus(num_ranks());
    if (uses_nccl() && std::ranges::count(gpus, gpus[0]) > 1)
      GTEST_SKIP() << "NCCL takes one rank on a GPU";
    if (const Status nccl = LoadNccl().status(); uses_nccl() && !nccl.ok())
      GTEST_SKIP() << nccl.message();
    setenv("INFLIGHT_CUDA_COLLECTIVES", GetParam().collectives, 1);
    group_ = Must(
        GpuGroup::Create(gpus, {.num_stages = GetParam().num_stages, .step_bytes = kStepBytes}));
    const ops::ShapeClass shape{.weight_dtype = DType::kBF16,
                                .dtype = DType::kBF16,
                                .kv_dtype = DType::kBF16,
                                .head_dim = 64,
                                .num_heads = 2,
                                .num_kv_heads = 2};
    for (int r = 0; r < num_ranks(); ++r) {
      Rank& rank = ranks_.emplace_back();
      rank.device = gpus[static_cast<size_t>(r)];
      rank.stream = Must(ops::cuda::CudaStream::Create(*rank.device, shape, 64, 64));
      rank.ops = Must(ops::FindOps(*rank.device, shape));
      rank.memory = Must(Buffer::Allocate(*rank.device, "shared", kSharedBytes));
      if (comm::Communicator* const tensor = group_->groups(r).tensor; tensor != nullptr)
        tensor->Share({rank.memory.data(), rank.memory.size()});
    }
    group_->JoinStages();
  }

  void TearDown() override { unsetenv("INFLIGHT_CUDA_COLLECTIVES"); }

  static int num_ranks() { return GetParam().num_ranks; }
  static bool uses_nccl() { return GetParam().collectives == std::string("nccl"); }

  // `work` of each rank on a thread of its own; then waits for the GPUs. Ranks that wait for each
  // other for good are a failure, and no hang.
  template <typename Work>
  void OnAllRanks(const Work& work) {
    std::promise<void> done;
    std::thread watch([this, is_done = done.get_future()] {
      constexpr std::chrono::seconds kPatience{60};
      if (is_done.wait_for(kPatience) == std::future_status::ready) return;
      ADD_FAILURE() << "the ranks wait for each other";
      group_->rank(0).Abort(Internal("the ranks wait for each other"));
    });
    std::vector<std::thread> threads;
    for (int r = 0; r < num_ranks(); ++r)
      threads.emplace_back([&, r] {
        cudaSetDevice(ranks_[static_cast<size_t>(r)].device->cuda().index);
        const Status status = work(r, ranks_[static_cast<size_t>(r)]);
        EXPECT_TRUE(status.ok()) << status.ToString();
        const Status waited = ranks_[static_cast<size_t>(r)].stream->Synchronize();
        EXPECT_TRUE(waited.ok()) << waited.ToString();
      });
    for (std::thread& thread : threads) thread.join();
    done.set_value();
    watch.join();
  }

  // NCCL connects ranks with the first message of a kind, which no graph can hold; a model's first
  // steps are in none.
  void Connect() {
    if (!uses_nccl()) return;
    for (const int64_t count : {8, 65536, 4 << 20})
      OnAllRanks([&](int r, Rank& rank) {
        return group_->rank(r).AllReduce({rank.memory.data(), DType::kBF16, {count}}, *rank.stream);
      });
  }

  template <typename T>
  std::vector<T> Read(int r, size_t offset, size_t count) {
    std::vector<T> values(count);
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    EXPECT_TRUE(
        rank.device->Copy(values.data(), rank.memory.data() + offset, count * sizeof(T)).ok());
    return values;
  }
  template <typename T>
  void Write(int r, size_t offset, const std::vector<T>& values) {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    EXPECT_TRUE(
        rank.device->Copy(rank.memory.data() + offset, values.data(), values.size() * sizeof(T))
            .ok());
  }

  template <typename T>
  void ExpectSums(DType dtype, int64_t count, double roundoff) {
    SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + std::to_string(count));
    constexpr size_t kOffset = 4096;
    std::vector<double> sums(static_cast<size_t>(count));
    std::vector<double> sizes(static_cast<size_t>(count));
    for (int r = 0; r < num_ranks(); ++r) {
      std::mt19937 random(static_cast<unsigned>(count * 16 + r));
      std::normal_distribution<float> normal;
      std::vector<T> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = T::FromFloat(normal(random));
        sums[i] += static_cast<double>(values[i].ToFloat());
        sizes[i] += std::abs(static_cast<double>(values[i].ToFloat()));
      }
      Write(r, kOffset, values);
    }
    OnAllRanks([&](int r, Rank& rank) {
      return group_->rank(r).AllReduce({rank.memory.data() + kOffset, dtype, {count}},
                                       *rank.stream);
    });
    const auto first = Read<T>(0, kOffset, static_cast<size_t>(count));
    double worst = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      // NCCL rounds each sum on the way, none larger than the sizes together.
      const double rounded = uses_nccl() ? num_ranks() * sizes[i] : std::abs(sums[i]);
      worst = golden::Worse(worst, std::abs(static_cast<double>(first[i].ToFloat()) - sums[i]) /
                                       (rounded * roundoff + sizes[i] * 1e-6 + 1e-30));
    }
    EXPECT_LE(worst, 1.0) << "of what rounding may change";
    for (int r = 1; r < num_ranks(); ++r) {
      const auto other = Read<T>(r, kOffset, static_cast<size_t>(count));
      EXPECT_EQ(std::memcmp(other.data(), first.data(), first.size() * sizeof(T)), 0)
          << "rank " << r;
    }
  }

  std::unique_ptr<GpuGroup> group_;
  std::vector<Rank> ranks_;
};

TEST_P(GpuGroupTest, SumsAreThoseOfDoublePrecisionAndTheSameOnAllRanks) {
  for (const int64_t count :
       {8, 16, 2040, 2048, 4096, 8192, 65536, 262144, 524288, 524296, 1048576, 3145728, 16777216}) {
    ExpectSums<BFloat16>(DType::kBF16, count, 0x1p-8);
    ExpectSums<Float16>(DType::kF16, count, 0x1p-11);
  }
}

// Small and large messages in turn, recorded once and replayed: what a call leaves behind harms
// none after it.
TEST_P(GpuGroupTest, CallsFollowEachOtherAndAreReplayed) {
  const std::vector<int64_t> counts = {4096, 1 << 20, 64, 2 << 20, 8192, 131072, 8, 1 << 20};
  constexpr int kReplays = 5;
  Connect();
  for (int r = 0; r < num_ranks(); ++r) {
    const std::vector<BFloat16> ones(2 << 20, BFloat16::FromFloat(0x1p-100F));
    Write(r, 0, ones);
  }
  OnAllRanks([&](int r, Rank& rank) -> Status {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    const cudaStream_t stream = rank.stream->handle();
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    for (const int64_t count : counts) {
      const Status done =
          group_->rank(r).AllReduce({rank.memory.data(), DType::kBF16, {count}}, *rank.stream);
      if (!done.ok()) return done;
    }
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&exec, graph, 0);
    for (int replay = 0; replay < kReplays; ++replay) cudaGraphLaunch(exec, stream);
    const Status waited = rank.stream->Synchronize();
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return waited;
  });
  // Element i was added up once for each count above it, in each replay: a power of the size.
  for (int r = 0; r < num_ranks(); ++r) {
    const auto values = Read<BFloat16>(r, 0, 2 << 20);
    for (const size_t i : {size_t{0}, size_t{7}, size_t{63}, size_t{4095}, size_t{100000},
                           size_t{1} << 19, (size_t{1} << 20) - 1, (size_t{2} << 20) - 1}) {
      const auto times = std::ranges::count_if(
          counts, [&](int64_t count) { return static_cast<size_t>(count) > i; });
      const double expected =
          0x1p-100 * std::pow(num_ranks(), static_cast<double>(times) * kReplays);
      EXPECT_EQ(static_cast<double>(values[i].ToFloat()), expected) << "rank " << r << " " << i;
    }
  }
}

TEST_P(GpuGroupTest, ColumnsOfAllRanksAreOnEachOfThem) {
  struct Case {
    int64_t rows, width, row_width;
  };
  const int n = num_ranks();
  for (const Case& c : {Case{1, 64, 64 * n}, Case{5, 100, 100 * n - 3}, Case{3, 7, 7 * n},
                        Case{33, 1024, 1024 * n - 4}, Case{8, 64000 / n, 64000}}) {
    SCOPED_TRACE(std::to_string(c.rows) + " rows of " + std::to_string(c.row_width));
    const size_t to = size_t{8} << 20;
    for (int r = 0; r < n; ++r) {
      std::vector<float> values(static_cast<size_t>(c.rows * c.width));
      for (size_t i = 0; i < values.size(); ++i) {
        const auto row = static_cast<int64_t>(i) / c.width;
        values[i] =
            static_cast<float>(row * 100003 + r * c.width + static_cast<int64_t>(i) % c.width);
      }
      Write(r, 0, values);
      Write(r, to, std::vector<float>(static_cast<size_t>(c.rows * c.row_width), -1.0F));
    }
    OnAllRanks([&](int r, Rank& rank) {
      return group_->rank(r).GatherColumns(
          {rank.memory.data(), DType::kF32, {c.rows, c.width}},
          {rank.memory.data() + to, DType::kF32, {c.rows, c.row_width}}, *rank.stream);
    });
    for (int r = 0; r < n; ++r) {
      const auto all = Read<float>(r, to, static_cast<size_t>(c.rows * c.row_width));
      int64_t num_wrong = 0;
      for (int64_t row = 0; row < c.rows; ++row)
        for (int64_t i = 0; i < c.row_width; ++i)
          num_wrong += all[static_cast<size_t>(row * c.row_width + i)] !=
                       static_cast<float>(row * 100003 + i);
      EXPECT_EQ(num_wrong, 0) << "rank " << r;
    }
  }
}

// What the kernel of a norm adds up, of rows that are few: the residual is that of double precision
// but for two roundings, and what is made of it the norm of what is stored.
TEST_P(GpuGroupTest, NormsAddUpRowsOfAllRanks) {
  if (uses_nccl()) GTEST_SKIP() << "norms add up nothing beside NCCL";
  const int n = num_ranks();
  constexpr size_t kResidual = size_t{8} << 20, kY = size_t{16} << 20, kWeight = size_t{24} << 20;
  for (const int64_t width : {256, 4096, 8192})
    for (const int64_t rows : {1, 3, 8}) {
      SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(width));
      const auto count = static_cast<size_t>(rows * width);
      std::mt19937 random(static_cast<unsigned>(width + rows));
      std::normal_distribution<float> normal;
      std::vector<BFloat16> residual(count);
      std::vector<float> weight(static_cast<size_t>(width));
      std::vector<double> sums(count);
      std::vector<double> sizes(count);
      for (float& w : weight) w = normal(random);
      for (size_t i = 0; i < count; ++i) {
        residual[i] = BFloat16::FromFloat(normal(random));
        sizes[i] = std::abs(static_cast<double>(residual[i].ToFloat()));
      }
      for (int r = 0; r < n; ++r) {
        std::vector<BFloat16> delta(count);
        for (size_t i = 0; i < count; ++i) {
          delta[i] = BFloat16::FromFloat(normal(random));
          sums[i] += static_cast<double>(delta[i].ToFloat());
        }
        Write(r, 0, delta);
        Write(r, kResidual, residual);
        Write(r, kWeight, weight);
      }
      OnAllRanks([&](int r, Rank& rank) -> Status {
        const ops::cuda::Peers* const peers = group_->rank(r).PeersOfNorm(rows, width);
        if (peers == nullptr) return Internal("rows are not few");
        const Shape shape = {rows, width};
        std::byte* const base = rank.memory.data();
        return rank.ops.add_norm(
            {.residual = {base + kResidual, DType::kBF16, shape},
             .delta = {base, DType::kBF16, shape},
             .peers = peers,
             .norm = {ops::NormKind::kRmsNorm, {base + kWeight, DType::kF32, {width}}, {}, 1e-5F},
             .y = {base + kY, DType::kBF16, shape}},
            *rank.stream);
      });
      const auto left = Read<BFloat16>(0, kResidual, count);
      const auto y = Read<BFloat16>(0, kY, count);
      double worst = 0;
      double worst_y = 0;
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        double squares = 0;
        const auto at = [&](size_t i) { return row * static_cast<size_t>(width) + i; };
        for (size_t i = 0; i < weight.size(); ++i) {
          const auto value = static_cast<double>(left[at(i)].ToFloat());
          const double exact = static_cast<double>(residual[at(i)].ToFloat()) + sums[at(i)];
          const double bound =
              0x1p-8 * (std::abs(exact) + std::abs(sums[at(i)])) + 1e-5 * sizes[at(i)] + 1e-6;
          worst = golden::Worse(worst, std::abs(value - exact) / bound);
          squares += value * value;
        }
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
        for (size_t i = 0; i < weight.size(); ++i) {
          const double exact =
              static_cast<double>(left[at(i)].ToFloat()) * scale * static_cast<double>(weight[i]);
          worst_y =
              golden::Worse(worst_y, std::abs(static_cast<double>(y[at(i)].ToFloat()) - exact) /
                                         (std::abs(exact) * 0x1p-8 * 1.01 + 1e-6));
        }
      }
      EXPECT_LE(worst, 1.0);
      EXPECT_LE(worst_y, 1.0);
      for (int r = 1; r < n; ++r) {
        const auto other = Read<BFloat16>(r, kResidual, count);
        EXPECT_EQ(std::memcmp(other.data(), left.data(), count * sizeof(BFloat16)), 0) << r;
      }
    }
}

TEST_P(GpuGroupTest, AGpuIsOfOneGroup) {
  const std::vector<Device*> gpus = RankGpus(num_ranks());
  EXPECT_EQ(GpuGroup::Create(gpus, {}).status().code(), StatusCode::kFailedPrecondition);
  group_.reset();
  EXPECT_TRUE(GpuGroup::Create(gpus, {}).ok());
}

// A rank that never comes: the others end with the reason, and their GPUs are free.
TEST_P(GpuGroupTest, AnAbortEndsWhoWaits) {
  if (num_ranks() == 1) GTEST_SKIP() << "one rank waits for none";
  Connect();
  OnAllRanks([&](int r, Rank& rank) -> Status {
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group_->rank(0).Abort(Internal("rank 0 is gone"));
      return Status::Ok();
    }
    return group_->rank(r).AllReduce({rank.memory.data(), DType::kBF16, {4096}}, *rank.stream);
  });
  Rank& rank = ranks_[1];
  const Status after =
      group_->rank(1).AllReduce({rank.memory.data(), DType::kBF16, {4096}}, *rank.stream);
  EXPECT_EQ(after.code(), StatusCode::kUnavailable);
  EXPECT_EQ(after.message(), "rank 0 is gone");
}

// Stages one behind the other: each call's rows arrive as they were sent, of whatever size, with
// several calls under way and from graphs; a receiver may want fewer than were sent.
class StagedGroupTest : public GpuGroupTest {
 protected:
  static constexpr size_t kSource = 0, kTarget = size_t{8} << 20;
  static constexpr int kNumCalls = 7;
  static int64_t WordsOf(int call) {
    constexpr int64_t kWords[kNumCalls] = {4, 2048, kStepBytes / 4, 64, 65536, 8192, 131072};
    return kWords[call];
  }
  // Each call has memory of its own on both sides, one behind the other.
  static size_t OffsetOf(int call) {
    size_t offset = 0;
    for (int before = 0; before < call; ++before)
      offset += static_cast<size_t>(WordsOf(before)) * 4;
    return offset;
  }
  // NCCL asks for as many as were sent.
  static bool IsShort(int call) { return call == 4 && !uses_nccl(); }
  // Of the first stage all, of the others what they received.
  Status Pass(int r, Rank& rank, int call) {
    const int stage = r / stage_size();
    comm::Communicator& pipeline = *group_->groups(r).pipeline;
    const auto view = [&](size_t base, int64_t words) {
      return TensorView{rank.memory.data() + base + OffsetOf(call), DType::kI32, {words}};
    };
    if (stage > 0) {
      const int64_t words = IsShort(call) ? WordsOf(call) / 2 : WordsOf(call);
      const Status received = pipeline.Receive(view(kTarget, words), stage - 1, *rank.stream);
      if (!received.ok() || stage == GetParam().num_stages - 1) return received;
    }
    return pipeline.Send(view(stage == 0 ? kSource : kTarget, WordsOf(call)), stage + 1,
                         *rank.stream);
  }
  static int stage_size() { return GetParam().num_ranks / GetParam().num_stages; }
  static int32_t ValueOf(int lane, int call, size_t i, int round) {
    return static_cast<int32_t>(i * 2654435761U) ^ (lane << 24 | call << 16 | round);
  }
  void Fill(int round) {
    for (int lane = 0; lane < stage_size(); ++lane)
      for (int call = 0; call < kNumCalls; ++call) {
        std::vector<int32_t> values(static_cast<size_t>(WordsOf(call)));
        for (size_t i = 0; i < values.size(); ++i) values[i] = ValueOf(lane, call, i, round);
        Write(lane, kSource + OffsetOf(call), values);
      }
  }
  void ExpectArrived(int round) {
    for (int r = stage_size(); r < num_ranks(); ++r)
      for (int call = 0; call < kNumCalls; ++call) {
        const auto count = static_cast<size_t>(IsShort(call) ? WordsOf(call) / 2 : WordsOf(call));
        const auto values = Read<int32_t>(r, kTarget + OffsetOf(call), count);
        int64_t num_wrong = 0;
        for (size_t i = 0; i < count; ++i)
          num_wrong += values[i] != ValueOf(r % stage_size(), call, i, round);
        EXPECT_EQ(num_wrong, 0) << "rank " << r << " call " << call << " round " << round;
      }
  }
};

TEST_P(StagedGroupTest, RowsArriveAsTheyWereSent) {
  for (int round = 0; round < 3; ++round) {
    Fill(round);
    OnAllRanks([&](int r, Rank& rank) -> Status {
      for (int call = 0; call < kNumCalls; ++call) RETURN_IF_ERROR(Pass(r, rank, call));
      return Status::Ok();
    });
    ExpectArrived(round);
  }
}

// NCCL promises no places for rows, has them in no graph, and puts them into no memory of a size.
class StagesOverPeersTest : public StagedGroupTest {};

// A sender waits for nobody with its first two calls: both are there before anybody looks.
TEST_P(StagesOverPeersTest, TwoCallsHavePlacesBeforeTheyAreReceived) {
  Fill(/*round=*/9);
  for (int call = 0; call < kNumCalls; call += 2)
    for (int r = 0; r < num_ranks(); ++r) {
      Rank& rank = ranks_[static_cast<size_t>(r)];
      cudaSetDevice(rank.device->cuda().index);
      for (int each = call; each < std::min(call + 2, kNumCalls); ++each)
        ASSERT_TRUE(Pass(r, rank, each).ok());
      ASSERT_TRUE(rank.stream->Synchronize().ok());
    }
  ExpectArrived(/*round=*/9);
}

TEST_P(StagedGroupTest, RowsOverPeersAloneMayBeRecorded) {
  EXPECT_EQ(group_->groups(0).pipeline->may_be_recorded(), !uses_nccl());
}

TEST_P(StagesOverPeersTest, RowsArriveFromGraphs) {
  std::vector<cudaGraphExec_t> graphs(static_cast<size_t>(num_ranks()));
  for (int round = 0; round < 4; ++round) {
    Fill(round);
    OnAllRanks([&](int r, Rank& rank) -> Status {
      cudaGraphExec_t& exec = graphs[static_cast<size_t>(r)];
      const cudaStream_t stream = rank.stream->handle();
      if (exec == nullptr) {
        cudaGraph_t graph = nullptr;
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
        for (int call = 0; call < kNumCalls; ++call) RETURN_IF_ERROR(Pass(r, rank, call));
        cudaStreamEndCapture(stream, &graph);
        cudaGraphInstantiate(&exec, graph, 0);
        cudaGraphDestroy(graph);
      }
      cudaGraphLaunch(exec, stream);
      return rank.stream->Synchronize();
    });
    ExpectArrived(round);
  }
  for (const cudaGraphExec_t exec : graphs) cudaGraphExecDestroy(exec);
}

// The first stage has to wait for the second, which never comes; and the second for the first.
TEST_P(StagedGroupTest, AnAbortEndsWhoWaits) {
  for (const int waiting : {0, stage_size()}) {
    // NCCL connects ranks with the first call, for which both have to be there.
    OnAllRanks([&](int r, Rank& rank) { return uses_nccl() ? Pass(r, rank, 0) : Status::Ok(); });
    OnAllRanks([&](int r, Rank& rank) -> Status {
      if (r == (waiting == 0 ? num_ranks() - 1 : 0)) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        group_->Abort(Internal("a stage is gone"));
      }
      if (r != waiting) return Status::Ok();
      for (int i = 0; i < 4; ++i) {
        const Status done = Pass(r, rank, 1);
        EXPECT_TRUE(done.ok() || done.message() == "a stage is gone") << done.ToString();
      }
      return Status::Ok();
    });
    comm::Communicator& pipeline = *group_->groups(0).pipeline;
    const Status after =
        pipeline.Send({ranks_[0].memory.data(), DType::kI32, {4}}, 1, *ranks_[0].stream);
    EXPECT_EQ(after.code(), StatusCode::kUnavailable);
    group_.reset();
    group_ = Must(GpuGroup::Create(
        RankGpus(num_ranks()), {.num_stages = GetParam().num_stages, .step_bytes = kStepBytes}));
    group_->JoinStages();
  }
}

// Rows that do not fit what a step hands over at most are refused.
TEST_P(StagesOverPeersTest, RowsBeyondAStepAreRefused) {
  comm::Communicator& pipeline = *group_->groups(0).pipeline;
  const Status refused = pipeline.Send(
      {ranks_[0].memory.data(), DType::kI32, {int64_t{kStepBytes} / 4 + 4}}, 1, *ranks_[0].stream);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
}

// Ranks of a stage add up beside what they hand over.
class StagesOfRanksTest : public StagedGroupTest {};

TEST_P(StagesOfRanksTest, StagesAddUpAmongThemselves) {
  for (int r = 0; r < num_ranks(); ++r)
    Write(r, 0, std::vector<BFloat16>(4096, BFloat16::FromFloat(static_cast<float>(1 << r))));
  OnAllRanks([&](int r, Rank& rank) {
    return group_->groups(r).tensor->AllReduce({rank.memory.data(), DType::kBF16, {4096}},
                                               *rank.stream);
  });
  for (int r = 0; r < num_ranks(); ++r) {
    const int first = r / stage_size() * stage_size();
    const int sum = ((1 << stage_size()) - 1) << first;
    EXPECT_EQ(Read<BFloat16>(r, 0, 4096)[77].ToFloat(), static_cast<float>(sum)) << r;
  }
}

std::string NameOfStages(const testing::TestParamInfo<GroupCase>& info) {
  return std::to_string(info.param.num_stages) + "of" + std::to_string(info.param.num_ranks) +
         info.param.collectives;
}

INSTANTIATE_TEST_SUITE_P(Stages, StagedGroupTest,
                         testing::Values(GroupCase{2, "peers", 2}, GroupCase{4, "peers", 4},
                                         GroupCase{4, "peers", 2}, GroupCase{2, "nccl", 2},
                                         GroupCase{4, "nccl", 4}, GroupCase{4, "nccl", 2}),
                         NameOfStages);
INSTANTIATE_TEST_SUITE_P(Stages, StagesOverPeersTest,
                         testing::Values(GroupCase{2, "peers", 2}, GroupCase{4, "peers", 4},
                                         GroupCase{4, "peers", 2}),
                         NameOfStages);
INSTANTIATE_TEST_SUITE_P(Stages, StagesOfRanksTest,
                         testing::Values(GroupCase{4, "peers", 2}, GroupCase{4, "nccl", 2}),
                         NameOfStages);

INSTANTIATE_TEST_SUITE_P(Ranks, GpuGroupTest,
                         testing::Values(GroupCase{2}, GroupCase{4}, GroupCase{1, "nccl"},
                                         GroupCase{2, "nccl"}, GroupCase{4, "nccl"}),
                         [](const auto& info) {
                           return std::to_string(info.param.num_ranks) + info.param.collectives;
                         });

}  // namespace
}  // namespace inflight::executor::cuda
