// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU against float64 on the host.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>

#include "attention_inputs.h"
#include "ops/cuda/float32/kernels.h"

namespace inflight::ops::cuda {
namespace {

constexpr int kMaxTokens = 8192;
constexpr int kMaxRows = 3000;

class CudaAttentionTest : public testing::Test {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    device_ = TestGpu().value().get();
  }

  // The stream of a model of the case's shape.
  Stream& StreamOf(const PagedCase& c, OpChoice choice = OpChoice::kFastest) {
    Result<std::unique_ptr<Stream>> stream = ops::MakeStream(*device_,
                                                             {.weight_dtype = c.dtype,
                                                              .dtype = c.dtype,
                                                              .kv_dtype = c.kv_dtype,
                                                              .head_dim = c.head_dim,
                                                              .num_heads = c.num_heads,
                                                              .num_kv_heads = c.num_kv_heads,
                                                              .hidden_size = 64,
                                                              .intermediate_size = 64,
                                                              .num_windows = 2},
                                                             kMaxTokens, kMaxRows, choice);
    EXPECT_TRUE(stream.ok()) << stream.status().ToString();
    stream_ = std::move(stream).value();
    cudaDeviceSynchronize();  // the workspace is zeroed on the default stream
    return *stream_;
  }

  // One step: plan, then attention.
  std::vector<float> Output(AttentionInputs& in, Stream& stream, int plan = 0) {
    const AttentionParams params = in.Params(plan);
    if (params.q.dtype == DType::kF32) {
      Check(float32::Attention(params, stream));
    } else {
      Check(PlanAttention(in.PlanParams(plan), stream));
      Check(Attention(params, stream));
    }
    Check(inflight::cuda::ToStatus(cudaStreamSynchronize(AsCuda(stream).handle()), "attention"));
    return in.TakeOutput();
  }

  void ExpectCorrect(const PagedCase& c) {
    AttentionInputs in(c, *device_);
    Stream& stream = StreamOf(c);
    const std::vector<float> once = Output(in, stream);
    EXPECT_TRUE(in.Agrees(once));
    const std::vector<float> twice = Output(in, stream, /*plan=*/1);
    EXPECT_EQ(std::memcmp(once.data(), twice.data(), once.size() * sizeof(float)), 0)
        << Name(c) << ": other bits in the second run";
  }

  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

constexpr DType kDTypes[][2] = {{DType::kBF16, DType::kBF16},
                                {DType::kF16, DType::kF16},
                                {DType::kBF16, DType::kF8E4M3},
                                {DType::kF16, DType::kF8E4M3},
                                {DType::kF32, DType::kF32}};

TEST_F(CudaAttentionTest, DecodeOfEveryLengthAroundABlock) {
  for (const int block_size : {16, 32, 64, 128}) {
    const std::vector<int> seq_lens = {
        1, block_size - 1, block_size, block_size + 1, 4097, 63, 65, 300, 2};
    for (size_t num_rows = 1; num_rows <= seq_lens.size(); ++num_rows)
      ExpectCorrect(WithDecode({.block_size = block_size},
                               {seq_lens.begin(), seq_lens.begin() + static_cast<int>(num_rows)}));
  }
}

TEST_F(CudaAttentionTest, DecodeOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const int num_heads : {8, 24}) {
        PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = num_heads};
        c.head_dim = head_dim;
        c.block_size = 32;
        c.q_gap = 40;
        ExpectCorrect(WithDecode(c, {17, 1025, 64, 1, 555}));
      }
}

TEST_F(CudaAttentionTest, DecodeOfEveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 20, 71})
    for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
      PagedCase c = {.kv_dtype = kv_dtype, .num_heads = 2 * group, .num_kv_heads = 2};
      ExpectCorrect(WithDecode(c, {700, 3, 129}));
    }
}

TEST_F(CudaAttentionTest, DecodeOfOneLongSequence) {
  ExpectCorrect(WithDecode({.num_heads = 4, .num_kv_heads = 1}, {30001}));
  ExpectCorrect(WithDecode({.num_heads = 32, .num_kv_heads = 8}, {1024}));
}

TEST_F(CudaAttentionTest, DecodeOfALongSequenceAmongShortOnes) {
  std::vector<int> seq_lens(64, 10);
  seq_lens[20] = 9000;
  ExpectCorrect(WithDecode({}, seq_lens));
}

TEST_F(CudaAttentionTest, DecodeOfManyRows) {
  Random random(3);
  for (const int num_rows : {255, 1024, 2500}) {
    std::vector<int> seq_lens;
    for (int i = 0; i < num_rows; ++i) seq_lens.push_back(1 + random.Below(150));
    PagedCase c = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16};
    c.has_table_rows = true;
    ExpectCorrect(WithDecode(c, seq_lens));
  }
}

// Scores that rise along the sequence move the running maximum again and again.
TEST_F(CudaAttentionTest, RisingScores) {
  for (const auto& [dtype, kv_dtype] : kDTypes) {
    PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype};
    c.key_ramp = 0.004F;
    ExpectCorrect(WithDecode(c, {1500, 900}));
    c.rows = {{200, 900}, {333, 333}};
    c.num_decode_rows = 0;
    ExpectCorrect(c);
  }
}

TEST_F(CudaAttentionTest, PrefillOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes) {
      PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .block_size = 16};
      c.head_dim = head_dim;
      c.q_gap = 64;
      c.rows = {{37, 37}, {50, 170}, {1, 129}, {64, 64}, {65, 300}, {2, 2}};
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, PrefillOfEveryBlockSize) {
  for (const int block_size : {16, 32, 64, 128})
    for (const DType kv_dtype : {DType::kBF16, DType::kF8E4M3}) {
      PagedCase c = {.kv_dtype = kv_dtype, .block_size = block_size};
      c.rows = {{200, 200}, {130, 513}, {1, 1}};
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, PrefillOfEveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 7, 8, 16, 33, 71}) {
    PagedCase c = {.num_heads = 2 * group};
    c.rows = {{70, 70}, {9, 200}};
    ExpectCorrect(c);
  }
}

// More tiles than multiprocessors: none is cut in two, and too few for each to take several.
TEST_F(CudaAttentionTest, PrefillOfSomeTiles) {
  Random random(6);
  std::vector<SequenceRow> rows = {{70, 70}, {1, 1}, {33, 160}};
  for (int i = 0; i < 40; ++i) {
    const int num_queries = 1 + random.Below(12);
    rows.push_back({num_queries, num_queries + random.Below(2) * random.Below(80)});
  }
  for (const int head_dim : {8, 24, 64, 72, 80, 96, 112, 128, 160, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes) {
      PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = 12, .num_kv_heads = 6};
      c.head_dim = head_dim;
      c.block_size = 32;
      c.rows = rows;
      ExpectCorrect(c);
    }
}

// So many tiles that each multiprocessor takes several in turn: what Hopper's own kernel is for.
TEST_F(CudaAttentionTest, PrefillOfManyTiles) {
  Random random(5);
  std::vector<SequenceRow> rows = {{300, 300}, {1, 1}, {129, 700}, {128, 128}, {64, 600}};
  for (int i = 0; i < 75; ++i) {
    const int num_queries = 1 + random.Below(30);
    rows.push_back({num_queries, num_queries + random.Below(2) * random.Below(200)});
  }
  for (const auto& [dtype, kv_dtype] : kDTypes)
    for (const int group : {1, 5}) {
      PagedCase c = {
          .dtype = dtype, .kv_dtype = kv_dtype, .num_heads = 6 * group, .num_kv_heads = 6};
      c.block_size = group == 1 ? 16 : 64;
      c.q_gap = 64;
      c.has_table_rows = group == 1;
      c.key_ramp = group == 5 ? 0.01F : 0;
      c.rows = rows;
      c.rows.insert(c.rows.begin(), {1, 700});
      c.num_decode_rows = 1;
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, MixedSteps) {
  for (const auto& [dtype, kv_dtype] : kDTypes) {
    PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = 12, .num_kv_heads = 3};
    c.rows = {{1, 70}, {1, 1}, {1, 1000}, {33, 33}, {19, 147}, {1, 65}, {260, 700}};
    c.num_decode_rows = 3;
    c.has_table_rows = true;
    ExpectCorrect(c);
  }
}

// A prompt prefilled whole, in chunks and token by token: each agrees with the same formula.
TEST_F(CudaAttentionTest, Chunks) {
  constexpr int kLength = 300;
  for (const std::vector<int>& chunks :
       {std::vector<int>{300}, std::vector<int>{1, 16, 63, 70, 150},
        std::vector<int>{128, 128, 44}}) {
    int done = 0;
    for (const int n : chunks) {
      PagedCase c = {.block_size = 32};
      c.rows = {{n, done + n}};
      ExpectCorrect(c);
      if (n == 1) {
        c.num_decode_rows = 1;
        ExpectCorrect(c);
      }
      done += n;
    }
    EXPECT_EQ(done, kLength);
  }
}

// The lengths of a captured step are read when it runs.
TEST_F(CudaAttentionTest, ACapturedStepRunsWithOtherLengths) {
  PagedCase c = WithDecode({.has_table_rows = true}, {2000, 2000, 2000, 2000});
  AttentionInputs in(c, *device_);
  Stream& stream = StreamOf(c);
  Output(in, stream);  // attributes of kernels are set outside
  cudaStream_t handle = AsCuda(stream).handle();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamBeginCapture(handle, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  Check(PlanAttention(in.PlanParams(), stream));
  Check(Attention(in.Params(), stream));
  ASSERT_EQ(cudaStreamEndCapture(handle, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (const std::vector<int>& seq_lens :
       {std::vector<int>{2000, 1, 64, 65}, std::vector<int>{1, 1, 1, 1},
        std::vector<int>{3, 1999, 2000, 700}}) {
    in.SetSeqLens(seq_lens);
    ASSERT_EQ(cudaGraphLaunch(exec, handle), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(handle), cudaSuccess);
    EXPECT_TRUE(in.Agrees(in.TakeOutput()));
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

struct Window {
  int window, num_sinks;
};
// Shorter and longer than blocks and tiles, sinks that end inside of them, one key behind sinks.
constexpr Window kWindows[] = {{1, 0},   {2, 1},   {5, 4},    {16, 0},    {17, 3},
                               {40, 8},  {64, 16}, {65, 64},  {100, 37},  {130, 129},
                               {256, 1}, {600, 0}, {1000, 4}, {4000, 300}};

TEST_F(CudaAttentionTest, DecodeInAWindow) {
  for (const Window& w : kWindows)
    for (const int block_size : {16, 64}) {
      PagedCase c = {.block_size = block_size, .window = w.window, .num_sinks = w.num_sinks};
      ExpectCorrect(
          WithDecode(c, {1, 2, w.window, w.window + 1, 15, 16, 17, 63, 64, 65, 300, 1025, 4097}));
    }
}

TEST_F(CudaAttentionTest, PrefillInAWindow) {
  for (const Window& w : kWindows)
    for (const int block_size : {16, 128}) {
      PagedCase c = {.num_heads = 6, .block_size = block_size, .window = w.window};
      c.num_sinks = w.num_sinks;
      c.rows = {{200, 200}, {130, 513}, {1, 1}, {1, 129}, {65, 300}, {3, 2000}, {2, 2}};
      ExpectCorrect(c);
    }
}

TEST_F(CudaAttentionTest, WindowsOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const int num_heads : {2, 20}) {
        PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = num_heads};
        c.head_dim = head_dim;
        c.block_size = 16;
        c.window = 75;
        c.num_sinks = 5;
        c.q_gap = 40;
        c.has_table_rows = true;
        c.rows = {{1, 1025}, {1, 75}, {1, 76}, {37, 37}, {90, 170}, {64, 800}};
        c.num_decode_rows = 3;
        ExpectCorrect(c);
      }
}

// A prompt in chunks, the window's far end inside of the first ones and behind them.
TEST_F(CudaAttentionTest, ChunksInAWindow) {
  int done = 0;
  for (const int n : {16, 1, 63, 70, 150, 128, 1}) {
    PagedCase c = {.block_size = 16, .window = 48, .num_sinks = 4};
    c.rows = {{n, done + n}};
    ExpectCorrect(c);
    if (n == 1) {
      c.num_decode_rows = 1;
      ExpectCorrect(c);
    }
    done += n;
  }
}

TEST_F(CudaAttentionTest, ManyRowsAndOneLongSequenceInAWindow) {
  Random random(4);
  std::vector<int> seq_lens;
  for (int i = 0; i < 700; ++i) seq_lens.push_back(1 + random.Below(400));
  seq_lens[400] = 20000;
  PagedCase c = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16};
  c.window = 150;
  c.num_sinks = 20;
  ExpectCorrect(WithDecode(c, seq_lens));
  c.window = 9000;  // as much work for one row as for all others
  ExpectCorrect(WithDecode(c, seq_lens));
}

// Decode rows that are split over the GPU and such as are not, and prefill in whole and in cut
// tiles, with and without a window.
TEST_F(CudaAttentionTest, CapsAndLogitsOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const auto& [softcap, has_sink_logits] :
           {std::pair{1.5F, false}, {20.0F, true}, {0.0F, true}})
        for (const int num_heads : {2, 20}) {
          PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = num_heads};
          c.head_dim = head_dim;
          c.block_size = 16;
          c.softcap = softcap;
          c.has_sink_logits = has_sink_logits;
          c.window = num_heads == 2 ? 0 : 75;
          c.q_gap = 40;
          c.has_table_rows = true;
          c.rows = {{1, 1025}, {1, 75}, {1, 1}, {37, 37}, {90, 170}, {64, 800}};
          c.num_decode_rows = 3;
          ExpectCorrect(c);
        }
}

// Keys that grow along the sequence: capped scores reach the cap.
TEST_F(CudaAttentionTest, RisingScoresAreCapped) {
  for (const auto& [dtype, kv_dtype] : kDTypes) {
    PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype};
    c.key_ramp = 0.004F;
    c.softcap = 6;
    c.has_sink_logits = true;
    c.rows = {{1, 1500}, {1, 900}, {200, 900}, {333, 333}};
    c.num_decode_rows = 2;
    ExpectCorrect(c);
  }
}

// What Hopper's own kernel would take but for a cap, or logits of heads.
TEST_F(CudaAttentionTest, CapsAndLogitsOfManyTiles) {
  for (const auto& [softcap, has_sink_logits] : {std::pair{5.0F, false}, {0.0F, true}}) {
    PagedCase c = {.num_heads = 6, .num_kv_heads = 6};
    c.softcap = softcap;
    c.has_sink_logits = has_sink_logits;
    for (int i = 0; i < 80; ++i) c.rows.push_back({1 + i % 30, 1 + i});
    ExpectCorrect(c);
  }
}

// --- trees of drafts ---

// Decode rows of every depth, lengths from a few tokens to many tiles.
std::vector<SequenceRow> TreeRows(int num_rows) {
  std::vector<SequenceRow> rows;
  for (int r = 0; r < num_rows; ++r) rows.push_back({1, 1 + r * r * 3 % 700});
  rows[9].seq_len = 4097;
  return rows;
}

TEST_F(CudaAttentionTest, TreesOfEveryHeadSizeAndDType) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const int num_heads : {2, 20}) {
        PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .num_heads = num_heads};
        c.head_dim = head_dim;
        c.block_size = 16;
        c.has_trees = true;
        c.q_gap = 40;
        c.has_table_rows = true;
        c.rows = TreeRows(40);
        c.num_decode_rows = 40;
        c.rows.insert(c.rows.end(), {{37, 37}, {1, 170}, {64, 800}});
        ExpectCorrect(c);
      }
}

TEST_F(CudaAttentionTest, TreesInWindowsAndWithCaps) {
  for (const int block_size : {16, 64, 128})
    for (const Window& w : {Window{40, 8}, {100, 37}, {17, 3}, {600, 0}}) {
      PagedCase c = {.block_size = block_size, .window = w.window, .num_sinks = w.num_sinks};
      c.softcap = block_size == 16 ? 5.0F : 0.0F;
      c.has_sink_logits = block_size == 128;
      c.has_trees = true;
      c.rows = TreeRows(36);
      c.num_decode_rows = 36;
      ExpectCorrect(c);
    }
}

// Heads of any multiple of 8, which float32 has no rows of other sizes for.
TEST_F(CudaAttentionTest, Float32OfOtherHeadSizes) {
  for (const int head_dim : {8, 16, 24, 40, 72, 120, 136, 200, 248})
    for (const int group : {1, 7}) {
      PagedCase c = {.dtype = DType::kF32, .kv_dtype = DType::kF32, .num_heads = 2 * group};
      c.head_dim = head_dim;
      c.block_size = 32;
      c.window = group == 7 ? 50 : 0;
      c.num_sinks = group == 7 ? 3 : 0;
      c.rows = {{1, 17}, {1, 1025}, {37, 37}, {50, 170}, {1, 129}};
      c.num_decode_rows = 2;
      ExpectCorrect(c);
    }
}

// The same in little, for compute-sanitizer.
TEST_F(CudaAttentionTest, TreesInLittle) {
  PagedCase c = {.num_heads = 4, .block_size = 16, .has_trees = true};
  c.rows = TreeRows(20);
  c.num_decode_rows = 20;
  c.rows.push_back({9, 30});
  ExpectCorrect(c);
}

// As in rows of their ancestors alone, which another kernel computes.
TEST_F(CudaAttentionTest, OfAFixedStreamADraftHasTheBitsOfAPlainRow) {
  for (const int head_dim : {64, 80, 96, 128, 256})
    for (const auto& [dtype, kv_dtype] : kDTypes)
      for (const int window : {0, 75}) {
        PagedCase c = {.dtype = dtype, .kv_dtype = kv_dtype, .head_dim = head_dim};
        c.block_size = 16;
        c.window = window;
        c.key_ramp = head_dim == 64 ? 0.004F : 0;
        c.rows = TreeRows(40);
        c.num_decode_rows = 40;
        c.rows.insert(c.rows.end(), {{37, 37}, {1, 170}, {64, 800}});
        Stream& stream = StreamOf(c, OpChoice::kFixed);
        AttentionInputs plain(c, *device_);
        c.has_trees = true;
        AttentionInputs trees(c, *device_);
        const std::vector<float> expected = Output(plain, stream);
        const std::vector<float> actual = Output(trees, stream);
        EXPECT_TRUE(trees.Agrees(actual));
        EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)), 0)
            << Name(c);
      }
}

// Layers of different windows read different plans of one step.
TEST_F(CudaAttentionTest, TwoWindowsOfOneStep) {
  PagedCase c;
  c.rows = {{1, 700}, {1, 90}, {100, 333}};
  c.num_decode_rows = 2;
  AttentionInputs all(c, *device_);
  c.window = 50;
  c.num_sinks = 3;
  AttentionInputs windowed(c, *device_);
  Stream& stream = StreamOf(c);
  Check(PlanAttention(all.PlanParams(0), stream));
  Check(PlanAttention(windowed.PlanParams(1), stream));
  for (int layer = 0; layer < 3; ++layer) {
    Check(Attention(all.Params(0), stream));
    Check(Attention(windowed.Params(1), stream));
  }
  ASSERT_EQ(cudaStreamSynchronize(AsCuda(stream).handle()), cudaSuccess);
  EXPECT_TRUE(all.Agrees(all.TakeOutput()));
  EXPECT_TRUE(windowed.Agrees(windowed.TakeOutput()));
}

TEST_F(CudaAttentionTest, NoRows) {
  PagedCase c;
  AttentionInputs in(c, *device_);
  Stream& stream = StreamOf(c);
  EXPECT_EQ(PlanAttention(in.PlanParams(), stream), Status::Ok());
  EXPECT_EQ(Attention(in.Params(), stream), Status::Ok());
}

TEST_F(CudaAttentionTest, WhatNoKernelDoesIsNamed) {
  const PagedCase c = WithDecode({}, {5});
  AttentionInputs in(c, *device_);
  Stream& stream = StreamOf(c);
  const auto expect = [&](const char* field, const auto& change) {
    AttentionParams params = in.Params();
    change(params);
    const Status status = Attention(params, stream);
    EXPECT_FALSE(status.ok()) << field;
    EXPECT_NE(status.ToString().find(field), std::string::npos) << status.ToString();
  };
  expect("head_dim", [](AttentionParams& p) { p.kv.head_dim = 72; });
  expect("block_size", [](AttentionParams& p) { p.kv.block_size = 48; });
  expect("kv.dtype", [](AttentionParams& p) { p.kv.dtype = DType::kF16; });
  expect("kv.dtype", [](AttentionParams& p) { p.kv.dtype = DType::kF32; });
  expect("q_stride", [](AttentionParams& p) { p.q_stride = 1028; });
  expect("num_heads", [](AttentionParams& p) { p.kv.num_kv_heads = 3; });
  expect("y", [](AttentionParams& p) { p.y.dtype = DType::kF32; });
  expect("num_decode_rows", [](AttentionParams& p) { p.batch.num_decode_rows = 2; });
  expect("sliding", [](AttentionParams& p) { p.sliding = {.window = 4, .num_sinks = 4}; });
  expect("sliding", [](AttentionParams& p) { p.sliding = {.window = -1}; });
  expect("softcap", [](AttentionParams& p) { p.softcap = -1; });
  expect("sink_logits", [](AttentionParams& p) {
    p.sink_logits = p.q;
    p.sink_logits.shape = {3};
  });
  expect("tree_shifts", [](AttentionParams& p) {
    p.batch.tree_shifts = p.q;
    p.batch.tree_shifts.shape = {1, kMaxTreeDepth};
  });
  expect("plan", [](AttentionParams& p) { p.plan = 2; });
}

}  // namespace
}  // namespace inflight::ops::cuda
