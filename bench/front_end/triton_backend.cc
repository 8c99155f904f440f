// SPDX-License-Identifier: Apache-2.0
// The bench's two models as a plug-in of Triton's server, so that it can be timed in turns with
// ours: identity, and mock_llm advancing its streams in rounds as ours does (its header says how).
// The model's name says which it is. run.py compiles it.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" {
struct TRITONSERVER_Error;
struct TRITONBACKEND_ModelInstance;
struct TRITONBACKEND_Model;
struct TRITONBACKEND_Request;
struct TRITONBACKEND_Response;
struct TRITONBACKEND_ResponseFactory;
struct TRITONBACKEND_Input;
struct TRITONBACKEND_Output;

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance*,
                                                     TRITONBACKEND_Model**);
TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model*, const char**);
TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request*, const char*,
                                               TRITONBACKEND_Input**);
TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input*, const char**, int*,
                                                  const int64_t**, uint32_t*, uint64_t*, uint32_t*);
TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input*, uint32_t, const void**,
                                              uint64_t*, int*, int64_t*);
TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request*, uint32_t*);
TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request*, uint32_t, const char**,
                                                   int*, const void**);
TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request*, uint32_t);
TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response**, TRITONBACKEND_Request*);
TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(TRITONBACKEND_Response**,
                                                         TRITONBACKEND_ResponseFactory*);
TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response*, TRITONBACKEND_Output**,
                                                 const char*, int, const int64_t*, uint32_t);
TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output*, void**, uint64_t, int*,
                                               int64_t*);
TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response*, uint32_t,
                                               TRITONSERVER_Error*);
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory**,
                                                     TRITONBACKEND_Request*);
TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory*);
TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory*,
                                                           uint32_t);
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance*,
                                                       TRITONBACKEND_Request**, uint32_t);
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kFinal = 1;
constexpr uint32_t kReleaseAll = 1;
constexpr int kParameterInt = 1;
constexpr int kParameterDouble = 3;

struct Stream {
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  std::string text;
  int datatype = 0;
  std::vector<int64_t> shape;
  int64_t num_left = 1;
  Clock::duration delay{};
  Clock::time_point due;
};

void AddOutput(TRITONBACKEND_Response* response, const char* name, int datatype,
               const std::vector<int64_t>& shape, const void* bytes, uint64_t size) {
  TRITONBACKEND_Output* output = nullptr;
  TRITONBACKEND_ResponseOutput(response, &output, name, datatype, shape.data(),
                               static_cast<uint32_t>(shape.size()));
  void* buffer = nullptr;
  int memory_type = 0;
  int64_t memory_id = 0;
  TRITONBACKEND_OutputBuffer(output, &buffer, size, &memory_type, &memory_id);
  std::memcpy(buffer, bytes, size);
}

bool Step(Stream& stream) {
  if (stream.num_left-- > 0) {
    TRITONBACKEND_Response* response = nullptr;
    TRITONBACKEND_ResponseNewFromFactory(&response, stream.factory);
    AddOutput(response, "TEXT", stream.datatype, stream.shape, stream.text.data(),
              stream.text.size());
    TRITONBACKEND_ResponseSend(response, 0, nullptr);
    stream.due += stream.delay;
    if (stream.num_left > 0) return true;
  }
  TRITONBACKEND_ResponseFactorySendFlags(stream.factory, kFinal);
  TRITONBACKEND_ResponseFactoryDelete(stream.factory);
  return false;
}

class Rounds {
 public:
  static Rounds& Get() {
    static auto* rounds = new Rounds;  // its thread ends with the process
    return *rounds;
  }

  void Add(Stream stream) {
    {
      const std::lock_guard lock(mutex_);
      added_.push_back(std::move(stream));
    }
    wake_.notify_one();
  }

 private:
  Rounds() {
    std::thread([this] { Run(); }).detach();
  }

  void Run() {
    std::vector<Stream> streams;
    auto next_due = Clock::time_point::max();
    while (true) {
      {
        std::unique_lock lock(mutex_);
        const auto has_news = [this] { return !added_.empty(); };
        if (streams.empty()) {
          wake_.wait(lock, has_news);
        } else {
          wake_.wait_until(lock, next_due, has_news);
        }
        for (Stream& stream : added_) streams.push_back(std::move(stream));
        added_.clear();
      }
      const auto now = Clock::now();
      std::erase_if(streams, [now](Stream& stream) { return stream.due <= now && !Step(stream); });
      next_due = Clock::time_point::max();
      for (const Stream& stream : streams) next_due = std::min(next_due, stream.due);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Stream> added_;
};

struct InputView {
  int datatype = 0;
  std::vector<int64_t> shape;
  std::string bytes;
};

InputView ReadInput(TRITONBACKEND_Request* request, const char* name) {
  TRITONBACKEND_Input* input = nullptr;
  TRITONBACKEND_RequestInput(request, name, &input);
  InputView view;
  const char* own_name = nullptr;
  const int64_t* shape = nullptr;
  uint32_t num_dims = 0, num_buffers = 0;
  uint64_t size = 0;
  TRITONBACKEND_InputProperties(input, &own_name, &view.datatype, &shape, &num_dims, &size,
                                &num_buffers);
  view.shape.assign(shape, shape + num_dims);
  for (uint32_t i = 0; i < num_buffers; ++i) {
    const void* part = nullptr;
    uint64_t part_size = 0;
    int memory_type = 0;
    int64_t memory_id = 0;
    TRITONBACKEND_InputBuffer(input, i, &part, &part_size, &memory_type, &memory_id);
    view.bytes.append(static_cast<const char*>(part), part_size);
  }
  return view;
}

void Echo(TRITONBACKEND_Request* request) {
  const InputView input = ReadInput(request, "INPUT0");
  TRITONBACKEND_Response* response = nullptr;
  TRITONBACKEND_ResponseNew(&response, request);
  AddOutput(response, "OUTPUT0", input.datatype, input.shape, input.bytes.data(),
            input.bytes.size());
  TRITONBACKEND_ResponseSend(response, kFinal, nullptr);
}

void Talk(TRITONBACKEND_Request* request) {
  InputView prompt = ReadInput(request, "PROMPT");
  Stream stream{.text = std::move(prompt.bytes),
                .datatype = prompt.datatype,
                .shape = std::move(prompt.shape)};
  uint32_t count = 0;
  TRITONBACKEND_RequestParameterCount(request, &count);
  for (uint32_t i = 0; i < count; ++i) {
    const char* key = nullptr;
    int type = 0;
    const void* value = nullptr;
    TRITONBACKEND_RequestParameter(request, i, &key, &type, &value);
    if (std::string(key) == "REPETITION" && type == kParameterInt) {
      stream.num_left = *static_cast<const int64_t*>(value);
    } else if (std::string(key) == "DELAY" && type == kParameterDouble) {
      stream.delay =
          std::chrono::nanoseconds(static_cast<int64_t>(*static_cast<const double*>(value) * 1e9));
    }
  }
  stream.due = Clock::now() + stream.delay;
  TRITONBACKEND_ResponseFactoryNew(&stream.factory, request);
  Rounds::Get().Add(std::move(stream));
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,
                                                       TRITONBACKEND_Request** requests,
                                                       uint32_t count) {
  TRITONBACKEND_Model* model = nullptr;
  const char* name = nullptr;
  TRITONBACKEND_ModelInstanceModel(instance, &model);
  TRITONBACKEND_ModelName(model, &name);
  const bool is_identity = std::string(name) == "identity";
  for (uint32_t i = 0; i < count; ++i) {
    is_identity ? Echo(requests[i]) : Talk(requests[i]);
    TRITONBACKEND_RequestRelease(requests[i], kReleaseAll);
  }
  return nullptr;
}
