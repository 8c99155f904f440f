// SPDX-License-Identifier: Apache-2.0
// As much of Triton's server as the plug-in calls: the objects behind its interface, with what the
// plug-in did to them, and switches for what a server may refuse. Tests load the library into their
// process, where it finds these functions as it finds the real ones in the real server. Those that
// came after version 1.13 of the interface stand in fake_server_later.cc.
//
// Threads: requests may be answered by any; everything else is the test's thread's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "protocol/triton_backend/triton_api.h"

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};

struct TRITONSERVER_Message {
  std::string json;
  bool is_owned = false;  // by who asked for it
};

struct TRITONSERVER_Parameter {
  std::string name, value;
};

struct TRITONSERVER_MetricFamily {
  std::string name;
};

struct TRITONSERVER_Metric {
  std::string series;  // name{label="value",...}
  std::atomic<double> value{0};
};

struct TRITONBACKEND_Backend {
  TRITONSERVER_Message config;
  void* state = nullptr;
};

struct TRITONBACKEND_BackendAttribute {
  int num_groups = 0;
  bool is_parallel = false;
};

struct TRITONBACKEND_Model {
  std::string name = "tensorrt_llm";
  uint64_t version = 1;
  std::string dir, config;
  TRITONBACKEND_Backend* backend = nullptr;
  void* state = nullptr;
};

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model* model = nullptr;
  std::atomic<int> num_successes{0}, num_failures{0}, num_batches{0}, num_responses{0};
};

// Memory of a GPU, where a test has one.
struct FakeDevice {
  void* (*allocate)(size_t num_bytes);
  void (*copy_to_host)(void* host, const void* device, size_t num_bytes);
};

struct TRITONBACKEND_Input {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INT32;
  std::vector<int64_t> shape;
  std::vector<std::string> buffers;
  TRITONSERVER_MemoryType place = TRITONSERVER_MEMORY_CPU;
  const void* on_device = nullptr;  // the only buffer's bytes, where they are there
};

struct FakeParameter {
  std::string name;
  TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_STRING;
  std::string text;
  int64_t number = 0;
  bool flag = false;
  double fraction = 0;
};

using FakeResponseParameters =
    std::map<std::string, std::variant<std::string, int64_t, bool, double>>;

// What one send brought.
struct Sent {
  std::map<std::string, std::vector<int32_t>> outputs;  // as words of 32 bits
  FakeResponseParameters parameters;
  std::optional<TRITONSERVER_Error> error;
  bool is_final = false;
};

struct TRITONBACKEND_Request {
  std::string id;
  std::vector<TRITONBACKEND_Input> inputs;
  std::vector<std::string> outputs;
  std::vector<FakeParameter> parameters;
  std::atomic<bool> is_cancelled{false};
  std::atomic<bool> refuses_outputs{false};  // OutputBuffer has no room
  TRITONSERVER_MemoryType output_place = TRITONSERVER_MEMORY_CPU;
  const FakeDevice* output_device = nullptr;

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Sent> sent;
  int num_releases = 0;

  std::vector<Sent> WaitUntilReleased();
  void WaitForResponses(size_t count);
};

struct TRITONBACKEND_ResponseFactory {
  TRITONBACKEND_Request* request;
};

struct TRITONBACKEND_Output {
  std::string name;
  std::string bytes;
  TRITONBACKEND_Request* request;
  void* on_device = nullptr;
};

struct TRITONBACKEND_Response {
  TRITONBACKEND_Request* request;
  std::vector<std::unique_ptr<TRITONBACKEND_Output>> outputs;
  FakeResponseParameters parameters;
};

struct TRITONBACKEND_ModelInstanceResponseStatistics {
  TRITONBACKEND_ModelInstance* instance = nullptr;
};

namespace fake_triton {

struct Counts {
  std::atomic<int> errors{0}, messages{0}, parameters{0}, metrics{0}, responses{0}, factories{0},
      statistics{0};
};
Counts& Live();  // objects that somebody still has to delete

// Of the interface, as TRITONBACKEND_ApiVersion says it.
void SetVersion(uint32_t major, uint32_t minor);
void SetLogs(bool is_on);
std::vector<std::string> TakeLog();
std::map<std::string, double> Metrics();

}  // namespace fake_triton
