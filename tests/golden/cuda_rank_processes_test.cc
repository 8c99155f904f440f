// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs that are processes, here threads that have met as processes do: the answers of
// ranks that are threads of one process, add up by NCCL too and have no stages, to the bit, for
// every kind of request, with adapters, guides and a draft model; and the end of a rank ends the
// wait for it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <future>
#include <thread>

#include "comm/rendezvous_fixture.h"
#include "cuda_ranks_fixture.h"
#include "decoding/list_guide.h"
#include "fitted_heads.h"
#include "golden_reference.h"
#include "loader/devices.h"
#include "loader/loader.h"
#include "loader/rank_processes.h"
#include "lora_cases.h"

namespace inflight::golden {
namespace {

struct ProcessGrid {
  int tp_size = 2;
  int pp_size = 1;

  int size() const { return tp_size * pp_size; }
};

class CudaRankProcessesTest : public testing::TestWithParam<ProcessGrid> {
 protected:
  void SetUp() override {
    NEED_RANK_GPUS(num_ranks());
    NEED_NCCL(num_ranks());
    gpus = RankGpus(num_ranks());
    setenv("INFLIGHT_CUDA_COLLECTIVES", "nccl", 1);
    options.tensor_parallel_size = GetParam().tp_size;
    options.pipeline_parallel_size = GetParam().pp_size;
    options.dtype = "bfloat16";
    options.executor.block_size = kBlockSize;
    options.executor.max_batch_size = 8;
    options.executor.max_kv_tokens = 4096;
    options.executor.deterministic = true;
  }
  void TearDown() override { unsetenv("INFLIGHT_CUDA_COLLECTIVES"); }

  static int num_ranks() { return GetParam().size(); }

  // A process that sees the one GPU of its rank.
  OpenOptions OptionsOf(size_t rank) const {
    OpenOptions own = options;
    own.devices = Devices::Only(std::shared_ptr<Device>(gpus[rank], [](Device*) {}));
    return own;
  }

  // The leader's: its rank beside those of `processes`.
  Result<loader::Loaded> LoadOn(const std::filesystem::path& dir,
                                const std::shared_ptr<RankProcesses>& processes) const {
    OpenOptions own = OptionsOf(0);
    own.rank_processes = [&processes](int) { return processes; };
    own.gpu_ranks_are_processes = true;
    return loader::Load(dir, own);
  }
  static std::shared_ptr<RankProcesses> JoinAsLeader(const comm::FreePort& port) {
    auto group = comm::JoinTest(port, 0, num_ranks());
    EXPECT_TRUE(group.ok()) << group.status().ToString();
    CHECK(group.ok());
    return std::make_shared<RankProcesses>(*std::move(group), /*ranks_of_this_host=*/1);
  }

  // What each process but the leader's does: `follow` with its group.
  static std::vector<std::thread> StartOthers(
      const comm::FreePort& port, const std::function<void(std::unique_ptr<comm::Group>)>& follow) {
    std::vector<std::thread> others;
    for (int rank = 1; rank < num_ranks(); ++rank)
      others.emplace_back([&port, follow, rank] {
        auto group = comm::JoinTest(port, rank, num_ranks());
        ASSERT_TRUE(group.ok()) << group.status().ToString();
        follow(*std::move(group));
      });
    return others;
  }

  // All processes: `lead` has the leader's executor.
  void OnProcesses(const std::filesystem::path& dir,
                   const std::function<void(Executor& executor)>& lead) {
    const comm::FreePort port;
    auto others = StartOthers(port, [this](std::unique_ptr<comm::Group> group) {
      const auto rank = static_cast<size_t>(group->rank());
      RankProcesses follower(std::move(group), /*ranks_of_this_host=*/1);
      const Status done = follower.Follow(OptionsOf(rank), [] { return false; });
      EXPECT_TRUE(done.ok()) << done.ToString();
    });
    const auto processes = JoinAsLeader(port);
    {
      const auto loaded = LoadOn(dir, processes);
      EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
      if (loaded.ok()) lead(*loaded->executor);
    }
    processes->SayGoodbye();
    for (std::thread& other : others) other.join();
  }

  // Without stages.
  std::unique_ptr<Executor> OnThreads(const std::filesystem::path& dir,
                                      const RankDrafts& drafts = {}) {
    ExecutorOptions own = options.executor;
    if (!drafts.empty()) own.drafts = DraftSource::kModel;
    const Gpus sharing(gpus.begin(), gpus.begin() + GetParam().tp_size);
    const RankEngines engines = OpenRanks(dir, sharing, {.dtype = DType::kBF16});
    if (engines.size() == 1)
      return MakeExecutor(engines.front(), *sharing.front(), own, {},
                          drafts.empty() ? executor::DraftWeights() : drafts.front());
    return MakeRanked(engines, sharing, own, drafts);
  }

  static void ExpectAllEqualOnes(const std::vector<Request>& requests, const Sinks& actual,
                                 const Sinks& expected) {
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i].sampling.num_return_sequences.value_or(1) == 1)
        ExpectEqual(*actual[i], *expected[i], i);
  }

  Gpus gpus;
  OpenOptions options;
};

TEST_P(CudaRankProcessesTest, EveryKindOfRequestIsAnsweredAsByThreads) {
  const std::filesystem::path dir = INFLIGHT_DEMO_MODEL;
  std::vector<Request> requests;
  Sinks expected;
  {
    const auto executor = OnThreads(dir);
    requests = RequestsOfAllKinds(executor->limits().vocab_size);
    for (Request& request : requests) request.bad_texts = nullptr;
    for (const int i : {0, 1, 2}) {
      Request& guided = requests.emplace_back();
      guided.input_ids = {5, 9, 17 + i, 33};
      guided.max_tokens = 12;
      guided.end_ids = {2};
      guided.guide = decoding::MakeListGuide(executor->limits().vocab_size,
                                             {{40, 60, 140}, {40, 61, 141}, {43, 60, 150, 151}});
    }
    requests.emplace_back(requests.front()).sampling = {.beam_width = 2};
    expected = RunAll<RowsSink>(*executor, requests);
  }
  OnProcesses(dir, [&](Executor& executor) {
    const Sinks actual = RunAll<RowsSink>(executor, requests);
    ExpectAllEqualOnes(requests, actual, expected);
    ASSERT_EQ(actual.back()->last.beams.size(), 2U);
    for (size_t b = 0; b < 2; ++b)
      EXPECT_EQ(actual.back()->last.beams[b].output_ids, expected.back()->last.beams[b].output_ids);
    Request refused = requests.front();
    refused.sampling = {.beam_width = 2};
    refused.end_ids = {2};
    refused.guide = requests[requests.size() - 2].guide;
    const auto answer = RunAll<RowsSink>(executor, {refused}).front();
    EXPECT_EQ(answer->last.status.code(), StatusCode::kUnimplemented)
        << answer->last.status.ToString();
    const Sinks again = RunAll<RowsSink>(executor, requests);
    ExpectAllEqualOnes(requests, again, expected);
  });
}

TEST_P(CudaRankProcessesTest, ADraftModelIsOnEachRankOfTheFirstStage) {
  const std::filesystem::path dir = INFLIGHT_DEMO_MODEL;
  const Gpus sharing(gpus.begin(), gpus.begin() + GetParam().tp_size);
  const RankDrafts drafts = DemoDrafts(sharing, DType::kBF16);
  options.executor.max_draft_len = 3;
  std::vector<Request> requests;
  Sinks expected;
  {
    const auto executor = OnThreads(dir, drafts);
    requests = RequestsOfAllKinds(executor->limits().vocab_size);
    for (Request& request : requests) request.bad_texts = nullptr;
    expected = RunAll<RowsSink>(*executor, requests);
  }
  options.draft_model = dir;
  OnProcesses(dir, [&](Executor& executor) {
    const Sinks actual = RunAll<RowsSink>(executor, requests);
    ExpectAllEqualOnes(requests, actual, expected);
    int num_drafted = 0;
    for (const auto& sink : actual) num_drafted += sink->last.num_draft_tokens;
    EXPECT_GT(num_drafted, 0);
  });
}

// Texts of the leader guess for the stages before it.
TEST_P(CudaRankProcessesTest, DraftsOutOfTextsAreTold) {
  const std::filesystem::path dir = INFLIGHT_DEMO_MODEL;
  std::vector<Request> requests;
  Sinks expected;
  {
    const auto executor = OnThreads(dir);
    requests = RequestsOfAllKinds(executor->limits().vocab_size);
    for (Request& request : requests) request.bad_texts = nullptr;
    expected = RunAll<RowsSink>(*executor, requests);
  }
  options.executor.drafts = DraftSource::kSuffix;
  OnProcesses(dir, [&](Executor& executor) {
    int num_accepted = 0;
    for (int round = 0; round < 2; ++round) {
      const Sinks actual = RunAll<RowsSink>(executor, requests);
      ExpectAllEqualOnes(requests, actual, expected);
      for (const auto& sink : actual) num_accepted += sink->last.num_accepted_draft_tokens;
    }
    EXPECT_GT(num_accepted, 0);
  });
}

// Medusa's heads of the leader's stage draft for the stages before it.
TEST_P(CudaRankProcessesTest, TreesOfHeadsAreTold) {
  options.executor.block_size = 64;
  std::vector<Request> requests;
  Sinks expected;
  {
    const auto executor = OnThreads(INFLIGHT_DEMO_MODEL);
    requests = RequestsOfAllKinds(executor->limits().vocab_size);
    for (Request& request : requests) request.bad_texts = nullptr;
    expected = RunAll<RowsSink>(*executor, requests);
  }
  std::vector<std::vector<TokenId>> texts;
  for (size_t i = 0; i < requests.size(); ++i) {
    texts.push_back(requests[i].input_ids);
    texts.back().insert(texts.back().end(), expected[i]->ids.begin(), expected[i]->ids.end());
  }
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "heads_of_processes";
  const auto checkpoint =
      WriteFittedHeads(INFLIGHT_DEMO_MODEL, texts, /*num_heads=*/4, DType::kBF16, folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  OnProcesses(*checkpoint, [&](Executor& executor) {
    const Sinks actual = RunAll<RowsSink>(executor, requests);
    ExpectAllEqualOnes(requests, actual, expected);
    EXPECT_GT(executor.stats().drafts_accepted, 40);
  });
  std::filesystem::remove_all(folder);
}

// Whose model has one layer, and so one stage.
class CudaAdaptersOfProcessesTest : public CudaRankProcessesTest {};

TEST_P(CudaAdaptersOfProcessesTest, AdaptersAreOnEachRank) {
  std::vector<LoraCase> cases = ReadLoraCases();
  std::erase_if(cases, [](const LoraCase& c) { return c.model != "llama_head64"; });
  std::vector<Request> requests;
  for (size_t i = 0; i < cases.size(); ++i) {
    requests.push_back(RequestOf(cases[i], i));
    requests.back().output = {.return_log_probs = true};
  }
  const std::filesystem::path dir = DataDir() / "llama_head64";
  const Sinks expected = RunAll<RowsSink>(*OnThreads(dir), requests);
  OnProcesses(dir, [&](Executor& executor) {
    // The first alone, so that its memory is taken between steps of the others.
    for (size_t i = 0; i < requests.size(); ++i)
      ExpectEqual(*RunAll<RowsSink>(executor, {requests[i]}).front(), *expected[i], i);
    ExpectAllEqualOnes(requests, RunAll<RowsSink>(executor, requests), expected);
  });
}

// A rank that ends while its leader's step waits for it.
TEST_P(CudaRankProcessesTest, ARankThatEndsEndsTheStepsOfItsLeader) {
  const comm::FreePort port;
  std::promise<void> is_there;
  auto others = StartOthers(port, [&](std::unique_ptr<comm::Group> group) {
    comm::Group& ended = *group;
    const int rank = group->rank();
    RankProcesses follower(std::move(group), /*ranks_of_this_host=*/1);
    std::thread killer([&] {
      if (rank > 1) return;
      is_there.get_future().wait();
      ended.Abort(Internal("killed"));
    });
    EXPECT_FALSE(follower.Follow(OptionsOf(static_cast<size_t>(rank)), [] { return false; }).ok());
    killer.join();
  });
  const auto processes = JoinAsLeader(port);
  auto loaded = LoadOn(INFLIGHT_DEMO_MODEL, processes);
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  Request request;
  request.input_ids = {5, 9, 17};
  request.max_tokens = 400;
  const auto sinks = EnqueueAll<RowsSink>(*loaded->executor, {request, request});
  is_there.set_value();
  for (const auto& sink : sinks) {
    sink->Wait();
    EXPECT_FALSE(sink->last.status.ok());
  }
  // At once, or where the others failed a moment ago by its answer.
  const auto late = std::make_shared<RowsSink>();
  const auto id = loaded->executor->Enqueue(request, late);
  if (id.ok()) late->Wait();
  EXPECT_EQ(id.ok() ? late->last.status.code() : id.status().code(), StatusCode::kUnavailable);
  loaded->executor.reset();
  for (std::thread& other : others) other.join();
}

std::string NameOfGrid(const testing::TestParamInfo<ProcessGrid>& info) {
  return std::to_string(info.param.tp_size) + "x" + std::to_string(info.param.pp_size);
}

INSTANTIATE_TEST_SUITE_P(Grids, CudaRankProcessesTest,
                         testing::Values(ProcessGrid{2, 1}, ProcessGrid{1, 2}, ProcessGrid{1, 3},
                                         ProcessGrid{2, 2}),
                         NameOfGrid);
INSTANTIATE_TEST_SUITE_P(Grids, CudaAdaptersOfProcessesTest, testing::Values(ProcessGrid{2, 1}),
                         NameOfGrid);

}  // namespace
}  // namespace inflight::golden
