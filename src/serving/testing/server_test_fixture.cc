// SPDX-License-Identifier: Apache-2.0
#include "serving/testing/server_test_fixture.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "base/file.h"

namespace inflight::serving {
namespace {

constexpr char kBls[] = R"(
  name: "tensorrt_llm_bls" backend: "python" max_batch_size: ${triton_max_batch_size}
  model_transaction_policy { decoupled: ${decoupled_mode} }
  input [ { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] },
          { name: "max_tokens" data_type: TYPE_INT32 dims: [ -1 ] },
          { name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
          { name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
          { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
          { name: "num_draft_tokens" data_type: TYPE_INT32 dims: [ 1 ] optional: true },
          { name: "use_draft_logits" data_type: TYPE_BOOL dims: [ 1 ] reshape: { shape: [ ] } optional: true } ]
  output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] },
           { name: "cum_log_probs" data_type: TYPE_FP32 dims: [ -1 ] } ]
  instance_group [ { count: ${bls_instance_count}, kind : KIND_CPU } ]
)";

}  // namespace

void ServerTest::SetUp() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  root_ = std::filesystem::temp_directory_path() /
          (std::string("inflight_") + info->name() + "_" + std::to_string(::getpid()));
  std::filesystem::create_directories(root_);
}

void ServerTest::Write(const std::filesystem::path& path, const std::string& content) const {
  std::filesystem::create_directories((root_ / path).parent_path());
  ASSERT_TRUE(WriteFile(root_ / path, content).ok());
}

std::string ServerTest::ModelDir() const {
  Write("model/config.json", "{}");
  Write("model/tokenizer.json", ByteTokenizerJson());
  return Path("model");
}

EngineLoader ServerTest::Loader(bool threaded) {
  return [this, threaded](const std::filesystem::path& dir, const std::string& owner,
                          const ExecutorOptions& options,
                          const AskedPlace& place) -> Result<LoadedEngine> {
    gpus_.push_back(place.gpus);
    loaded_dirs_.push_back(dir.string());
    owners_.push_back(owner);
    all_options_.push_back(options);
    options_ = options;
    executor_ = std::make_shared<FakeExecutor>(FakeExecutor::SmallLimits(), threaded);
    LoadedEngine engine;
    engine.backend = {.steps = nullptr, .executor = executor_, .end_ids = {257}};
    engine.tokenizer_dir = dir;
    return engine;
  };
}

std::unique_ptr<Server> ServerTest::Serve(const ServerOptions& options, bool threaded) {
  auto server = CreateServerWith(options, Loader(threaded));
  EXPECT_TRUE(server.ok()) << server.status().ToString();
  return server.ok() ? std::move(*server) : nullptr;
}

std::string ServerTest::StateOf(const Server& server, const std::string& model) {
  for (const IndexEntry& entry : server.Index(false)) {
    if (entry.name == model) return entry.state;
  }
  return "absent";
}

void ServerTest::WaitUntilUnloaded(const Server& server, const std::string& model) {
  while (StateOf(server, model) == "UNLOADING") std::this_thread::yield();
  EXPECT_EQ(StateOf(server, model), "UNAVAILABLE");
}

void ServerTest::WriteServable(const std::string& repo, const std::string& llm_parameters,
                               const std::string& decoupled) const {
  WriteRepository(repo, llm_parameters, decoupled);
  WriteEngine(repo + "/tensorrt_llm/1");
}

void ServerTest::WriteEngine(const std::string& dir) const {
  Write(dir + "/config.json", "{}");
  Write(dir + "/tokenizer.json", ByteTokenizerJson());
}

void ServerTest::WriteBls(const std::string& repo, const std::string& parameters) const {
  Write(repo + "/tensorrt_llm_bls/config.pbtxt", kBls + parameters);
  std::filesystem::create_directories(root_ / repo / "tensorrt_llm_bls/1");
}

// The four models in the shape of the 0.10 release, cut to the tensors that the tests send.
void ServerTest::WriteRepository(const std::string& repo, const std::string& llm_parameters,
                                 const std::string& decoupled) const {
  Write(repo + "/preprocessing/config.pbtxt", R"(
    name: "preprocessing" backend: "python" max_batch_size: ${triton_max_batch_size}
    input [ { name: "QUERY" data_type: TYPE_STRING dims: [ -1 ] },
            { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ -1 ] },
            { name: "STOP_WORDS_DICT" data_type: TYPE_STRING dims: [ -1 ] optional: true } ]
    output [ { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] },
             { name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] },
             { name: "STOP_WORDS_IDS" data_type: TYPE_INT32 dims: [ 2, -1 ] },
             { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ -1 ] },
             { name: "OUT_END_ID" data_type: TYPE_INT32 dims: [ -1 ] } ]
    parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } }
    parameters { key: "add_special_tokens" value: { string_value: "${add_special_tokens}" } }
    instance_group [ { count: ${preprocessing_instance_count} kind: KIND_CPU } ])");
  Write(repo + "/tensorrt_llm/config.pbtxt", R"(
    name: "tensorrt_llm" backend: "${triton_backend}" max_batch_size: ${triton_max_batch_size}
    model_transaction_policy { decoupled: )" + decoupled +
                                                 R"( }
    dynamic_batching { preferred_batch_size: [ ${triton_max_batch_size} ]
                       max_queue_delay_microseconds: 250
                       default_queue_policy: { max_queue_size: 17 } }
    input [ { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true },
            { name: "input_lengths" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } },
            { name: "request_output_len" data_type: TYPE_INT32 dims: [ 1 ] },
            { name: "end_id" data_type: TYPE_INT32 dims: [ 1 ] reshape: { shape: [ ] } optional: true },
            { name: "stop_words_list" data_type: TYPE_INT32 dims: [ 2, -1 ] optional: true },
            { name: "streaming" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
            { name: "stop" data_type: TYPE_BOOL dims: [ 1 ] optional: true } ]
    output [ { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] },
             { name: "sequence_length" data_type: TYPE_INT32 dims: [ -1 ] } ]
    parameters { key: "gpt_model_type" value: { string_value: "${batching_strategy}" } }
)" + llm_parameters);
  Write(repo + "/postprocessing/config.pbtxt", R"(
    name: "postprocessing" backend: "python" max_batch_size: ${triton_max_batch_size}
    input [ { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] },
            { name: "SEQUENCE_LENGTH" data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] } ]
    parameters { key: "tokenizer_dir" value: { string_value: "${tokenizer_dir}" } })");
  Write(repo + "/ensemble/config.pbtxt", R"(
    name: "ensemble" platform: "ensemble" max_batch_size: ${triton_max_batch_size}
    input [ { name: "text_input" data_type: TYPE_STRING dims: [ -1 ] },
            { name: "max_tokens" data_type: TYPE_INT32 dims: [ -1 ] },
            { name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
            { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true } ]
    output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
    ensemble_scheduling { step [
      { model_name: "preprocessing" model_version: -1
        input_map { key: "QUERY" value: "text_input" }
        input_map { key: "REQUEST_OUTPUT_LEN" value: "max_tokens" }
        input_map { key: "STOP_WORDS_DICT" value: "stop_words" }
        output_map { key: "INPUT_ID" value: "_INPUT_ID" }
        output_map { key: "REQUEST_INPUT_LEN" value: "_REQUEST_INPUT_LEN" }
        output_map { key: "REQUEST_OUTPUT_LEN" value: "_REQUEST_OUTPUT_LEN" }
        output_map { key: "STOP_WORDS_IDS" value: "_STOP_WORDS_IDS" }
        output_map { key: "OUT_END_ID" value: "_END_ID" } },
      { model_name: "tensorrt_llm" model_version: -1
        input_map { key: "input_ids" value: "_INPUT_ID" }
        input_map { key: "input_lengths" value: "_REQUEST_INPUT_LEN" }
        input_map { key: "request_output_len" value: "_REQUEST_OUTPUT_LEN" }
        input_map { key: "stop_words_list" value: "_STOP_WORDS_IDS" }
        input_map { key: "end_id" value: "_END_ID" }
        input_map { key: "streaming" value: "stream" }
        output_map { key: "output_ids" value: "_TOKENS" }
        output_map { key: "sequence_length" value: "_LENGTH" } },
      { model_name: "postprocessing" model_version: -1
        input_map { key: "TOKENS_BATCH" value: "_TOKENS" }
        input_map { key: "SEQUENCE_LENGTH" value: "_LENGTH" }
        output_map { key: "OUTPUT" value: "text_output" } } ] })");
  for (const char* model : {"preprocessing", "tensorrt_llm", "postprocessing", "ensemble"}) {
    std::filesystem::create_directories(root_ / repo / model / "1");
  }
}

Request TextRequest(const std::string& text, int max_tokens, std::vector<Tensor> more) {
  Request request;
  request.model_name = "ensemble";
  request.inputs = {Text("text_input", {text}), Int("max_tokens", max_tokens)};
  for (Tensor& tensor : more) request.inputs.push_back(std::move(tensor));
  return request;
}

void Infer(Server& server, Request request, ResponseHandler handler) {
  auto model = server.FindModel(request.model_name, request.model_version);
  if (!model.ok()) return handler({.status = model.status(), .is_final = true, .rejected = true});
  server.Infer(*std::move(model), std::move(request), std::move(handler));
}

std::vector<std::string> Lines(const std::vector<IndexEntry>& index) {
  std::vector<std::string> lines;
  for (const IndexEntry& entry : index) {
    lines.push_back(entry.name + " " + entry.version + " " + entry.state);
  }
  return lines;
}

}  // namespace inflight::serving
