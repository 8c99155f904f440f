// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "serving/testing/server_test_fixture.h"

namespace inflight::serving {
namespace {

namespace fs = std::filesystem;
using contract::KeyEffect;
using contract::KeyLine;
using contract::KeySource;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Parameter(const std::string& key, const std::string& value) {
  return "parameters { key: \"" + key + "\" value: { string_value: \"" + value + "\" } }\n";
}

class RepositoryTest : public ServerTest {
 protected:
  std::vector<ModelReport> Reports(const std::string& repo) {
    const ServerOptions options;
    Repository repository(options, Loader(), WorkerPool::MakeShared(1, "text"));
    repository.LoadRepository(Path(repo));
    return repository.reports();
  }
  static std::string StateOf(const Server& server, const std::string& model) {
    for (const IndexEntry& entry : server.Index(false)) {
      if (entry.name == model) return entry.state + " " + entry.reason;
    }
    return "absent";
  }
  // The text of an answer.
  std::string Ask(Server& server, const std::string& model, std::vector<Tensor> more = {}) {
    Collector got;
    Request request = TextRequest("ab", 3, std::move(more));
    request.model_name = model;
    Infer(server, std::move(request), got.Handler());
    executor_->Run();
    EXPECT_TRUE(got.status().ok()) << got.status().ToString();
    return got.Joined();
  }
};

KeyLine LineOf(const std::vector<ModelReport>& reports, const std::string& model,
               const std::string& key) {
  for (const ModelReport& report : reports) {
    if (report.model != model) continue;
    for (const KeyLine& line : report.keys) {
      if (line.key == key) return line;
    }
  }
  ADD_FAILURE() << "the report of " << model << " has no " << key;
  return {};
}

// --- BLS ---

TEST_F(RepositoryTest, BlsAnswersLikeTheEnsembleWithoutSequenceParameters) {
  WriteServable("repo", Parameter("exclude_input_in_output", "True"));
  WriteBls("repo");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  const auto bls = *server->FindModel("tensorrt_llm_bls", "");
  EXPECT_TRUE(bls->decoupled());                 // left unfilled: the LLM's
  EXPECT_EQ(bls->config().max_batch_size(), 8);  // the engine's
  Collector got;
  Request request = TextRequest("ab", 3, {Float("temperature", 0.5F)});
  request.model_name = "tensorrt_llm_bls";
  Infer(*server, std::move(request), got.Handler());
  EXPECT_EQ(executor_->last_request.sampling.temperature, 0.5F);
  EXPECT_THAT(executor_->last_request.end_ids, ElementsAre(257));
  executor_->Run();
  ASSERT_EQ(got.responses().size(), 2U);  // the answer, then the end
  EXPECT_EQ(got.Joined(), "aba");
  EXPECT_FALSE(got.responses()[0].is_final);
  EXPECT_TRUE(got.responses()[0].parameters.empty());
  EXPECT_TRUE(got.responses()[1].is_final);
  EXPECT_TRUE(got.responses()[1].outputs.empty());
}

TEST_F(RepositoryTest, BlsStreamsOneResponsePerStepThenTheEnd) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  Collector got;
  Request request = TextRequest("ab", 3, {Bool("stream", true)});
  request.model_name = "tensorrt_llm_bls";
  Infer(*server, std::move(request), got.Handler());
  executor_->Run();
  EXPECT_EQ(got.responses().size(), 4U);
  EXPECT_EQ(got.num_final(), 1);
  EXPECT_EQ(got.Joined(), "aba");
}

TEST_F(RepositoryTest, BlsThatIsNotDecoupledAnswersOnceAndDoesNotStream) {
  WriteServable("repo", "", "False");
  WriteBls("repo");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  Collector got;
  Request request = TextRequest("ab", 2);
  request.model_name = "tensorrt_llm_bls";
  Infer(*server, request, got.Handler());
  executor_->Run();
  ASSERT_EQ(got.responses().size(), 1U);
  EXPECT_TRUE(got.last().is_final);
  EXPECT_EQ(got.Joined(), "abab");  // with the prompt: it is not excluded
  Collector refused;
  request.inputs.push_back(Bool("stream", true));
  Infer(*server, request, refused.Handler());
  EXPECT_THAT(refused.status().message(), HasSubstr("Streaming is only supported if model is"));
}

TEST_F(RepositoryTest, BlsChecksItsRequestInUpstreamsWords) {
  WriteServable("repo");
  WriteBls("repo");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  const auto error = [&](const std::string& text, int max_tokens, std::vector<Tensor> more = {}) {
    Collector got;
    Request request = TextRequest(text, max_tokens, std::move(more));
    request.model_name = "tensorrt_llm_bls";
    Infer(*server, std::move(request), got.Handler());
    EXPECT_EQ(got.num_final(), 1);
    return got.status().message();
  };
  EXPECT_EQ(error("", 3), "text_input is required");
  EXPECT_EQ(error("ab", 0), "max_tokens must be a single value > 0");
  EXPECT_THAT(error("ab", 3, {Int("num_draft_tokens", 4)}),
              HasSubstr("cannot perform speculative decoding without draft model"));
  EXPECT_EQ(error("ab", 3, {Int("num_draft_tokens", -1)}),
            "num_draft_tokens: got -1, must be at least 0 (0 for none)");
  EXPECT_EQ(Ask(*server, "tensorrt_llm_bls",
                {Int("num_draft_tokens", 0), Bool("use_draft_logits", true)}),
            "ababa");
}

TEST_F(RepositoryTest, WhatBlsCannotDoIsRefusedAndTheOthersAreServed) {
  WriteServable("repo");
  WriteBls("repo", Parameter("multimodal_encoders_name", "vision"));
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_THAT(StateOf(*server, "tensorrt_llm_bls"), HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(StateOf(*server, "tensorrt_llm_bls"), HasSubstr("multimodal_encoders_name"));
  EXPECT_EQ(server->Index(true).size(), 4U);
}

TEST_F(RepositoryTest, AMemberThatNoModelHasIsAnErrorOfTheRequest) {
  WriteServable("repo");
  WriteBls("repo", Parameter("tensorrt_llm_model_name", "nosuch"));
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_EQ(server->Index(true).size(), 5U);
  Collector got;
  Request request = TextRequest("ab", 3);
  request.model_name = "tensorrt_llm_bls";
  Infer(*server, std::move(request), got.Handler());
  EXPECT_EQ(got.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(got.status().message(), HasSubstr("Model 'nosuch' is not ready"));
  EXPECT_THAT(got.status().message(), HasSubstr("tensorrt_llm_model_name"));
}

// --- what is missing ---

TEST_F(RepositoryTest, AnEnsembleWithoutAModelEndsTheStart) {
  for (const char* missing : {"preprocessing", "postprocessing", "tensorrt_llm"}) {
    WriteServable("repo");
    Write("repo/model/tokenizer.json", ByteTokenizerJson());
    fs::remove_all(root_ / "repo" / missing);
    fs::remove_all(root_ / "repo/model");
    ServerOptions options = {.model_repositories = {Path("repo")}};
    EXPECT_THAT(CreateServerWith(options, Loader()).status().message(),
                HasSubstr(std::string("ensemble ensemble contains models that are not available or "
                                      "ambiguous: ") +
                          missing));
    options.exit_on_error = false;
    const auto server = CreateServerWith(options, Loader());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    EXPECT_FALSE((*server)->ready());
    EXPECT_TRUE((*server)->live());
    const bool has_engine = std::string_view(missing) != "tensorrt_llm";
    EXPECT_EQ((*server)->FindModel("tensorrt_llm", "").ok(), has_engine);
    fs::remove_all(root_ / "repo");
  }
}

TEST_F(RepositoryTest, AnEnsembleOfItselfEndsTheStart) {
  const auto ensemble = [](const std::string& step) {
    return "platform: 'ensemble' input { name: 'A' data_type: TYPE_INT32 dims: 1 } "
           "output { name: 'B' data_type: TYPE_INT32 dims: 1 } ensemble_scheduling { step { "
           "model_name: '" +
           step +
           "' model_version: -1 input_map { key: 'A' value: 'A' } output_map { key: 'B' value: "
           "'B' } } }";
  };
  for (const auto& [name, step] : {std::pair("one", "two"), std::pair("two", "one")}) {
    Write("repo/" + std::string(name) + "/config.pbtxt", ensemble(step));
    fs::create_directories(root_ / "repo" / name / "1");
  }
  EXPECT_THAT(CreateServerWith({.model_repositories = {Path("repo")}}, Loader()).status().message(),
              HasSubstr("circular dependency between ensembles: two -> ... -> one -> two"));
}

TEST_F(RepositoryTest, AnEnsembleOfAVersionThatIsNotThereEndsTheStart) {
  const std::string tensors =
      "input { name: 'INPUT0' data_type: TYPE_INT32 dims: 1 } "
      "output { name: 'OUTPUT0' data_type: TYPE_INT32 dims: 1 } ";
  Write("repo/plain/config.pbtxt", "backend: 'conformance' " + tensors);
  Write("repo/outer/config.pbtxt",
        "platform: 'ensemble' " + tensors +
            "ensemble_scheduling { step { model_name: 'plain' model_version: 7 "
            "input_map { key: 'INPUT0' value: 'INPUT0' } "
            "output_map { key: 'OUTPUT0' value: 'OUTPUT0' } } }");
  for (const char* model : {"plain", "outer"}) fs::create_directories(root_ / "repo" / model / "1");
  ServerOptions options = {.model_repositories = {Path("repo")}};
  const char kText[] = "ensemble 'outer' depends on 'plain' whose required version 7 is not loaded";
  EXPECT_THAT(CreateServerWith(options, Loader()).status().message(), HasSubstr(kText));
  options.exit_on_error = false;
  const auto server = CreateServerWith(options, Loader());
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_FALSE((*server)->ready());
  EXPECT_THAT(StateOf(**server, "outer"), HasSubstr(kText));
}

TEST_F(RepositoryTest, AnEmptyRepositoryIsServedAndOneThatIsNotThereIsNot) {
  fs::create_directories(root_ / "empty");
  for (const ControlMode mode : {ControlMode::kNone, ControlMode::kExplicit, ControlMode::kPoll}) {
    const auto empty =
        CreateServerWith({.model_repositories = {Path("empty")}, .control_mode = mode}, Loader());
    ASSERT_TRUE(empty.ok()) << empty.status().ToString();
    EXPECT_TRUE((*empty)->ready());
    ServerOptions options = {.model_repositories = {Path("absent")}, .control_mode = mode};
    EXPECT_THAT(CreateServerWith(options, Loader()).status().message(),
                HasSubstr("failed to stat file"));
    options.exit_on_error = false;
    const auto absent = CreateServerWith(options, Loader());
    ASSERT_TRUE(absent.ok()) << absent.status().ToString();
    EXPECT_FALSE((*absent)->live());
    EXPECT_FALSE((*absent)->ready());
    EXPECT_EQ((*absent)->CheckUsable(), Unavailable("Server not ready"));
    EXPECT_EQ((*absent)->FindModel("m", "").status(), Unavailable("Server not ready"));
  }
}

TEST_F(RepositoryTest, WithoutATokenizerTheLlmIsServedAlone) {
  WriteRepository("repo", "");
  Write("repo/tensorrt_llm/1/config.json", "{}");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_THAT(Lines(server->Index(true)), ElementsAre("tensorrt_llm 1 READY"));
  EXPECT_THAT(StateOf(*server, "preprocessing"), HasSubstr("tokenizer_dir"));
}

TEST_F(RepositoryTest, AnEnginesDirectoryWithoutATokenizerIsServedToo) {
  Write("engine/config.json", "{}");
  const auto server = Serve({.model_dirs = {Path("engine")}});
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(server->ready());
  EXPECT_THAT(Lines(server->Index(true)), ElementsAre("tensorrt_llm 1 READY"));
  EXPECT_THAT(StateOf(*server, "preprocessing"),
              HasSubstr("tokenizer_dir of model 'preprocessing' is not set, and "
                        "'engine', the engine's, has no tokenizer files; copy them there, or set "
                        "tokenizer_dir in the model's config.pbtxt to where they are"));
}

TEST_F(RepositoryTest, WithoutAnEngineATokenizerMustBeNamed) {
  WriteServable("repo");
  fs::remove_all(root_ / "repo/ensemble");
  fs::remove_all(root_ / "repo/tensorrt_llm");
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(),
              HasSubstr("tokenizer_dir of model 'preprocessing' is not set, and no engine was "
                        "loaded whose directory could have one; set it in the model's "
                        "config.pbtxt"));
}

TEST_F(RepositoryTest, OfSeveralEnginesATokenizerMustBeNamed) {
  WriteServable("repo");
  fs::remove_all(root_ / "repo/ensemble");
  fs::copy(root_ / "repo/tensorrt_llm", root_ / "repo/draft", fs::copy_options::recursive);
  auto text = ReadFile(Path("repo/draft/config.pbtxt"), 1 << 20);
  ASSERT_TRUE(text.ok());
  text->replace(text->find("tensorrt_llm"), 12, "draft");
  Write("repo/draft/config.pbtxt", *text);
  fs::rename(root_ / "repo/tensorrt_llm", root_ / "repo/target");
  text->replace(text->find("\"draft\""), 7, "\"target\"");
  Write("repo/target/config.pbtxt", *text);
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_THAT(Lines(server->Index(true)), ElementsAre("draft 1 READY", "target 1 READY"));
  EXPECT_THAT(StateOf(*server, "preprocessing"),
              HasSubstr("tokenizer_dir of model 'preprocessing' is not set, and several engines "
                        "were loaded that could be meant; set it in the model's config.pbtxt"));
}

TEST_F(RepositoryTest, ANamedTokenizerThatIsNotThereEndsTheStart) {
  WriteServable("repo");
  const std::string file = "repo/postprocessing/config.pbtxt";
  auto text = ReadFile(Path(file), 1 << 20);
  ASSERT_TRUE(text.ok());
  text->replace(text->find("${tokenizer_dir}"), 16, "/no/such/tokenizer");
  Write(file, *text);
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(), HasSubstr("/no/such/tokenizer"));
}

TEST_F(RepositoryTest, ATokenizerMayBeNamedByItsHubId) {
  WriteServable("repo");
  const std::string file = "repo/postprocessing/config.pbtxt";
  auto text = ReadFile(Path(file), 1 << 20);
  ASSERT_TRUE(text.ok());
  text->replace(text->find("${tokenizer_dir}"), 16, "org/not-in-the-cache");
  Write(file, *text);
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(), HasSubstr("tokenizer_dir: org/not-in-the-cache"));
  EXPECT_THAT(failed.status().message(), HasSubstr("models--org--not-in-the-cache"));
}

TEST_F(RepositoryTest, AnEmptyVersionDirectoryIsNamed) {
  WriteRepository("repo", "");
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(),
              HasSubstr("Both encoder and decoder model paths are empty"));
  EXPECT_THAT(failed.status().message(), HasSubstr("repo/tensorrt_llm/1"));
}

TEST_F(RepositoryTest, AnEngineThatCannotBeReadEndsTheStartWhateverItsError) {
  const auto loader = [](const fs::path&, const std::string&, const ExecutorOptions&,
                         const AskedPlace&) -> Result<LoadedEngine> {
    return FailedPrecondition("rank0.engine has format version 99");
  };
  const auto failed = CreateServerWith({.model_dirs = {ModelDir()}}, loader);
  EXPECT_THAT(failed.status().message(), HasSubstr("format version 99"));
  const auto rest = CreateServerWith({.model_dirs = {ModelDir()}, .exit_on_error = false}, loader);
  ASSERT_TRUE(rest.ok()) << rest.status().ToString();
  EXPECT_THAT(Lines((*rest)->Index(true)),
              ElementsAre("postprocessing 1 READY", "preprocessing 1 READY"));
}

// --- where things lie ---

TEST_F(RepositoryTest, RelativeEnginePathsStartAtTheModelOrTheRepository) {
  for (const char* path : {"1/my_engine", "tensorrt_llm/1", "../engines"}) {
    WriteRepository("repo", Parameter("gpt_model_path", path));
    WriteEngine("repo/tensorrt_llm/1/my_engine");
    WriteEngine("repo/tensorrt_llm/../engines/only");
    const auto server = Serve({.model_repositories = {Path("repo")}});
    ASSERT_NE(server, nullptr) << path;
    fs::remove_all(root_ / "repo");
  }
  EXPECT_THAT(loaded_dirs_[0], HasSubstr("repo/tensorrt_llm/1/my_engine"));
  EXPECT_THAT(loaded_dirs_[1], HasSubstr("repo/tensorrt_llm/1/my_engine"));
  EXPECT_THAT(loaded_dirs_[2], HasSubstr("repo/tensorrt_llm/../engines/only"));
}

TEST_F(RepositoryTest, ARepositoryGivenAsADirectoryMayLieOneLevelDeeper) {
  WriteServable("outer/inner");
  fs::create_directories(root_ / "outer/.cache");
  const auto server = Serve({.model_dirs = {Path("outer")}});
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->Index(true).size(), 4U);
}

// --- several LLMs ---

// A second pipeline beside the first: all names end in "_2".
void CopyPipeline(const fs::path& repo, const std::string& llm_parameters) {
  for (const std::string model : {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}) {
    auto text = ReadFile(repo / model / "config.pbtxt", 1 << 20);
    ASSERT_TRUE(text.ok());
    for (const std::string name : {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}) {
      for (const std::string key : {"name: \"", "model_name: \""}) {
        const size_t at = text->find(key + name + "\"");
        if (at != std::string::npos) text->insert(at + key.size() + name.size(), "_2");
      }
    }
    if (model == "tensorrt_llm") *text += llm_parameters;
    fs::create_directories(repo / (model + "_2/1"));
    ASSERT_TRUE(WriteFile(repo / (model + "_2") / "config.pbtxt", *text).ok());
  }
}

TEST_F(RepositoryTest, TwoPipelinesHaveTheirOwnEnginesTokenizersAndShares) {
  WriteServable("repo");
  CopyPipeline(root_ / "repo", Parameter("max_tokens_in_paged_kv_cache", "640") +
                                   Parameter("kv_cache_free_gpu_mem_fraction", "0.25"));
  WriteEngine("repo/tensorrt_llm_2/1");
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->Index(true).size(), 8U);
  EXPECT_THAT(owners_, ElementsAre("tensorrt_llm/1", "tensorrt_llm_2/1"));
  EXPECT_EQ(all_options_[0].kv_cache_free_memory_fraction, 0.9);  // the only one left open
  EXPECT_EQ(all_options_[1].kv_cache_free_memory_fraction, 0.25);
  EXPECT_EQ(all_options_[1].max_kv_tokens, 640);
  EXPECT_EQ(Ask(*server, "ensemble_2"), "ababa");  // runs on the engine loaded last
}

TEST_F(RepositoryTest, SharesLeftOpenAreEqualOnes) {
  WriteServable("repo");
  CopyPipeline(root_ / "repo", "");
  WriteEngine("repo/tensorrt_llm_2/1");
  const auto reports = Reports("repo");
  EXPECT_EQ(all_options_[0].kv_cache_free_memory_fraction, 0.45);
  EXPECT_EQ(all_options_[1].kv_cache_free_memory_fraction, 0.9);
  const KeyLine line = LineOf(reports, "tensorrt_llm", "kv_cache_free_gpu_mem_fraction");
  EXPECT_EQ(line.value, "0.45");
  EXPECT_EQ(line.source, KeySource::kAuto);
}

TEST_F(RepositoryTest, ALoadThatIsTriedAgainTakesTheShareOfTheFirst) {
  WriteServable("repo");
  CopyPipeline(root_ / "repo", "");
  WriteEngine("repo/tensorrt_llm_2/1");
  bool has_failed = false;
  const EngineLoader fails_once = [&, load = Loader()](const fs::path& dir, auto& owner,
                                                       auto& options, auto& place) {
    auto engine = load(dir, owner, options, place);
    if (!std::exchange(has_failed, true)) engine = Unavailable("busy");
    return engine;
  };
  const ServerOptions options = {.model_repositories = {Path("repo")}, .model_load_retries = 1};
  const auto server = CreateServerWith(options, fails_once);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  EXPECT_THAT(owners_, ElementsAre("tensorrt_llm/1", "tensorrt_llm/1", "tensorrt_llm_2/1"));
  EXPECT_EQ(all_options_[1].kv_cache_free_memory_fraction, 0.45);
  EXPECT_EQ(all_options_[2].kv_cache_free_memory_fraction, 0.9);
}

TEST_F(RepositoryTest, ABlsNamesItsModels) {
  WriteServable("repo");
  CopyPipeline(root_ / "repo", "");
  WriteEngine("repo/tensorrt_llm_2/1");
  WriteBls("repo", Parameter("tensorrt_llm_model_name", "tensorrt_llm_2") +
                       Parameter("preprocessing_model_name", "preprocessing_2") +
                       Parameter("postprocessing_model_name", "postprocessing_2"));
  const auto server = Serve({.model_repositories = {Path("repo")}});
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(Ask(*server, "tensorrt_llm_bls"), "ababa");
}

// --- the report ---

TEST_F(RepositoryTest, EachKeyIsReportedWithSourceAndEffect) {
  WriteServable("repo", Parameter("max_beam_width", "${max_beam_width}") +
                            Parameter("enable_trt_overlap", "True") +
                            Parameter("gpt_model_path", "tensorrt_llm/1"));
  WriteBls("repo");
  const auto reports = Reports("repo");
  ASSERT_EQ(reports.size(), 5U);
  const auto expect = [&](const char* model, const char* key, const char* value, KeySource source,
                          KeyEffect effect) {
    const KeyLine line = LineOf(reports, model, key);
    EXPECT_EQ(line.value, value) << model << " " << key;
    EXPECT_EQ(line.source, source) << model << " " << key;
    EXPECT_EQ(line.effect, effect) << model << " " << key;
  };
  using enum KeySource;
  using enum KeyEffect;
  expect("tensorrt_llm", "max_batch_size", "8", kAuto, kHonoured);
  expect("tensorrt_llm", "backend", "tensorrtllm", kAuto, kHonoured);
  expect("tensorrt_llm", "decoupled", "true", kFile, kHonoured);
  expect("tensorrt_llm", "max_queue_size", "17", kFile, kHonoured);
  expect("tensorrt_llm", "max_queue_delay_microseconds", "250", kFile, kHonoured);
  expect("tensorrt_llm", "max_beam_width", "the engine's", kDefault, kHonoured);
  expect("tensorrt_llm", "enable_trt_overlap", "True", kFile, kIgnored);
  expect("tensorrt_llm", "gpt_model_path", "tensorrt_llm/1", kFile, kHonoured);
  expect("preprocessing", "tokenizer_dir", "beside the engine", kDefault, kHonoured);
  expect("preprocessing", "add_special_tokens", "false", kDefault, kHonoured);
  expect("preprocessing", "instance_group.count", "1", kDefault, kHonoured);
  expect("ensemble", "decoupled", "true", kAuto, kHonoured);
  expect("tensorrt_llm_bls", "decoupled", "true", kAuto, kHonoured);
  expect("tensorrt_llm_bls", "tensorrt_llm_model_name", "tensorrt_llm", kDefault, kHonoured);
}

TEST_F(RepositoryTest, TheReportSaysWhichSamplersAndWhichGpu) {
  WriteServable("repo", Parameter("max_beam_width", "1") + Parameter("gpu_device_ids", "1,"));
  const auto reports = Reports("repo");
  EXPECT_THAT(gpus_, ElementsAre(ElementsAre(1)));
  const KeyLine mode = LineOf(reports, "tensorrt_llm", "decoding_mode");
  EXPECT_EQ(mode.value, "auto");
  EXPECT_EQ(mode.effect, KeyEffect::kHonoured);
  EXPECT_EQ(mode.reason, "top_k_top_p, since max_beam_width is 1");
  const KeyLine gpu = LineOf(reports, "tensorrt_llm", "gpu_device_ids");
  EXPECT_EQ(gpu.effect, KeyEffect::kIgnored) << "the executor runs elsewhere";
  EXPECT_EQ(gpu.reason, "--device says where models run");
}

TEST_F(RepositoryTest, RefusedKeysStandInTheReport) {
  WriteServable("repo",
                Parameter("eagle_choices", "{0}") + Parameter("encoder_model_path", "/enc"));
  const auto reports = Reports("repo");
  for (const char* key : {"eagle_choices", "encoder_model_path"}) {
    const KeyLine line = LineOf(reports, "tensorrt_llm", key);
    EXPECT_EQ(line.effect, KeyEffect::kRefused) << key;
    EXPECT_THAT(line.reason, HasSubstr(key));
  }
}

TEST_F(RepositoryTest, ParametersOfAModelThatIsRefusedForAFieldStandInTheReport) {
  WriteServable("repo", "model_repository_agents { agents { name: \"a\" } }" +
                            Parameter("max_beam_width", "1"));
  const auto reports = Reports("repo");
  EXPECT_EQ(LineOf(reports, "tensorrt_llm", "model_repository_agents").effect, KeyEffect::kRefused);
  EXPECT_EQ(LineOf(reports, "tensorrt_llm", "max_beam_width").source, KeySource::kFile);
}

TEST_F(RepositoryTest, MoreInstancesOfAnLlmAreRefused) {
  WriteServable("repo", "instance_group [ { count: 2 kind: KIND_CPU } ]");
  const auto failed = CreateServerWith({.model_repositories = {Path("repo")}}, Loader());
  EXPECT_THAT(failed.status().message(), HasSubstr("instance_group.count"));
}

}  // namespace
}  // namespace inflight::serving
