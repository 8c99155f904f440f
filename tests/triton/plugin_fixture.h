// SPDX-License-Identifier: Apache-2.0
// The plug-in loaded into a test's process, and requests for it.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fake_server.h"

namespace fake_triton {

inline constexpr int kNumTokens = 6;

// The library, as a server holds it.
class Library {
 public:
  Library() : handle_(dlopen(INFLIGHT_PLUGIN, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) ADD_FAILURE() << dlerror();
  }

  template <typename... Args>
  std::optional<TRITONSERVER_Error> Call(const char* name, Args... args) const {
    const auto function = reinterpret_cast<TRITONSERVER_Error* (*)(Args...)>(dlsym(handle_, name));
    if (function == nullptr) {
      ADD_FAILURE() << name << " is not exported";
      return std::nullopt;
    }
    TRITONSERVER_Error* const error = function(args...);
    if (error == nullptr) return std::nullopt;
    const TRITONSERVER_Error copy = *error;
    TRITONSERVER_ErrorDelete(error);
    return copy;
  }

 private:
  void* const handle_;  // stays for the process, as the library asks
};

inline const Library& Plugin() {
  static const Library library;
  return library;
}

#define EXPECT_DONE(call)                                  \
  do {                                                     \
    const auto error_of_call = (call);                     \
    EXPECT_FALSE(error_of_call) << error_of_call->message; \
  } while (false)

inline std::string Config(const nlohmann::json& changes = nlohmann::json::object()) {
  const auto tensor = [](const char* name, const char* type, const std::vector<int>& dims) {
    return nlohmann::json{{"name", name}, {"data_type", type}, {"dims", dims}};
  };
  nlohmann::json config = {
      {"name", "tensorrt_llm"},
      {"backend", "tensorrtllm"},
      {"max_batch_size", 8},
      {"model_transaction_policy", {{"decoupled", true}}},
      {"input",
       {tensor("input_ids", "TYPE_INT32", {-1}), tensor("input_lengths", "TYPE_INT32", {1}),
        tensor("request_output_len", "TYPE_INT32", {1}), tensor("streaming", "TYPE_BOOL", {1})}},
      {"output",
       {tensor("output_ids", "TYPE_INT32", {-1, -1}),
        tensor("sequence_length", "TYPE_INT32", {-1})}},
      {"a_field_of_a_later_server", {{"count", 1}}},
      {"parameters",
       {{"gpt_model_path", {{"string_value", INFLIGHT_DEMO}}},
        {"gpt_model_type", {{"string_value", "inflight_batching"}}},
        {"max_tokens_in_paged_kv_cache", {{"string_value", "4096"}}}}}};
  config.merge_patch(changes);
  return config.dump();
}

template <typename T>
TRITONBACKEND_Input Input(const char* name, TRITONSERVER_DataType datatype, std::vector<T> values) {
  std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return {.name = name,
          .datatype = datatype,
          .shape = {1, static_cast<int64_t>(values.size())},
          .buffers = {std::move(bytes)}};
}

inline TRITONBACKEND_Input Text(const char* name, const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return {.name = name,
          .datatype = TRITONSERVER_TYPE_BYTES,
          .shape = {1, 1},
          .buffers = {bytes + text}};
}

inline std::unique_ptr<TRITONBACKEND_Request> Ask(int num_tokens, bool streaming) {
  auto request = std::make_unique<TRITONBACKEND_Request>();
  request->id = "one";
  request->inputs.push_back(
      Input<int32_t>("input_ids", TRITONSERVER_TYPE_INT32, {2043, 549, 501, 256, 464}));
  request->inputs.push_back(Input<int32_t>("input_lengths", TRITONSERVER_TYPE_INT32, {5}));
  request->inputs.push_back(
      Input<int32_t>("request_output_len", TRITONSERVER_TYPE_INT32, {num_tokens}));
  request->inputs.push_back(
      Input<uint8_t>("streaming", TRITONSERVER_TYPE_BOOL, {uint8_t{streaming}}));
  request->outputs = {"output_ids", "sequence_length"};
  return request;
}

class PluginTest : public testing::Test {
 protected:
  explicit PluginTest(std::string on = "cpu", std::string in = "float32")
      : device(std::move(on)), dtype(std::move(in)) {}

  void SetUp() override {
    backend.config.json =
        R"({"cmdline":{"device":")" + device + R"(","dtype":")" + dtype + R"(","threads":"1"}})";
    ASSERT_FALSE(Plugin().Call("TRITONBACKEND_Initialize", &backend));
    model.dir = testing::TempDir();
    model.config = Config();
    model.backend = &backend;
    instance.model = &model;
  }
  void TearDown() override {
    EXPECT_DONE(Plugin().Call("TRITONBACKEND_Finalize", &backend));
    const fake_triton::Counts& live = fake_triton::Live();
    EXPECT_EQ(live.errors, 0);
    EXPECT_EQ(live.messages, 0);
    EXPECT_EQ(live.parameters, 0);
    EXPECT_EQ(live.metrics, 0);
    EXPECT_EQ(live.responses, 0);
    EXPECT_EQ(live.factories, 0);
    EXPECT_EQ(live.statistics, 0);
  }

  void Load() {
    const auto error = Plugin().Call("TRITONBACKEND_ModelInitialize", &model);
    ASSERT_FALSE(error) << error->message;
  }
  void Unload() { EXPECT_DONE(Plugin().Call("TRITONBACKEND_ModelFinalize", &model)); }
  void Execute(TRITONBACKEND_Request* request) {
    EXPECT_DONE(
        Plugin().Call("TRITONBACKEND_ModelInstanceExecute", &instance, &request, uint32_t{1}));
  }
  std::string LoadError(const nlohmann::json& changes) {
    model.config = Config(changes);
    const auto error = Plugin().Call("TRITONBACKEND_ModelInitialize", &model);
    EXPECT_TRUE(error);
    return error ? error->message : "";
  }

  const std::string device, dtype;
  TRITONBACKEND_Backend backend;
  TRITONBACKEND_Model model;
  TRITONBACKEND_ModelInstance instance;
};

}  // namespace fake_triton
