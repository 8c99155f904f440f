// SPDX-License-Identifier: Apache-2.0
// ModelStreamInfer over gRPC: a stream for each request, all of one connection.
#include <memory>
#include <unordered_map>
#include <utility>

#include "bench/load/load.h"
#include "bench/load/requests.h"
#include "grpc_service.pb.h"
#include "protocol/grpc_client/grpc_client.h"

namespace inflight::bench {
namespace {

using grpc_client::GrpcClient;
using grpc_client::GrpcEnd;
using grpc_client::GrpcListener;
using inference::ModelInferRequest;
using inference::ModelStreamInferResponse;

void AddTensor(ModelInferRequest& request, const char* name, const char* datatype, int64_t size,
               std::string bytes) {
  auto& input = *request.add_inputs();
  input.set_name(name);
  input.set_datatype(datatype);
  input.add_shape(1);
  input.add_shape(size);
  request.add_raw_input_contents(std::move(bytes));
}

// Little endian, as the protocol wants it and this machine has it.
std::string Int32Bytes(const int32_t* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(int32_t)};
}

void AddInt(ModelInferRequest& request, const char* name, int32_t value) {
  AddTensor(request, name, "INT32", 1, Int32Bytes(&value, 1));
}

ModelInferRequest MakeRequest(const LoadOptions& options, const LoadPrompt& prompt) {
  ModelInferRequest request;
  request.set_model_name(options.model);
  if (prompt.ids.empty()) {
    const auto size = static_cast<int32_t>(prompt.text.size());
    AddTensor(request, "text_input", "BYTES", 1, Int32Bytes(&size, 1) + prompt.text);
    AddInt(request, "max_tokens", prompt.output_len);
    AddTensor(request, "stream", "BOOL", 1, std::string(1, '\1'));
  } else {
    AddTensor(request, "input_ids", "INT32", static_cast<int64_t>(prompt.ids.size()),
              Int32Bytes(prompt.ids.data(), prompt.ids.size()));
    AddInt(request, "input_lengths", static_cast<int32_t>(prompt.ids.size()));
    AddInt(request, "request_output_len", prompt.output_len);
    AddTensor(request, "streaming", "BOOL", 1, std::string(1, '\1'));
  }
  if (options.ignore_end) AddInt(request, "end_id", -1);
  return request;
}

class GrpcTransport : public LoadTransport {
 public:
  GrpcTransport(const LoadOptions& options, const std::vector<LoadPrompt>& prompts)
      : options_(options), prompts_(prompts), client_(options.host, options.port) {
    for (const LoadPrompt& prompt : prompts) {
      requests_.push_back(MakeRequest(options, prompt).SerializeAsString());
    }
  }

  void Start(size_t index, RequestOutcome& outcome) override {
    auto call = std::make_unique<Call>(*this, index, outcome);
    outcome.sent_ns = LoadNowNs();
    client_.Start("/inference.GRPCInferenceService/ModelStreamInfer", requests_[index],
                  /*is_only=*/true, *call, outcome.sent_ns + options_.timeout_ms * 1'000'000);
    calls_.emplace(call.get(), std::move(call));
  }

  int Poll(int64_t until_ns) override {
    while (num_ended_ == 0 && LoadNowNs() < until_ns) client_.Poll(until_ns);
    ended_.clear();
    return std::exchange(num_ended_, 0);
  }

 private:
  struct Call : GrpcListener {
    Call(GrpcTransport& transport_of, size_t index_of, RequestOutcome& outcome_of)
        : transport(transport_of), index(index_of), outcome(&outcome_of) {}

    void OnMessage(std::string_view bytes) override {
      if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
        error = "answer: no ModelStreamInferResponse";
        return;
      }
      transport.TakeResponse(*this);
    }
    void OnEnd(const GrpcEnd& end) override { transport.End(*this, end); }

    GrpcTransport& transport;
    const size_t index;
    RequestOutcome* const outcome;
    ModelStreamInferResponse response;
    int64_t last_ns = 0;
    std::string error;
  };

  // The client is within a method of the call.
  void End(Call& call, const GrpcEnd& end) {
    call.outcome->end_ns = LoadNowNs();
    if (call.error.empty() && end.code != 0) {
      call.error = ErrorKind("gRPC " + std::to_string(end.code), end.message);
    }
    call.outcome->error = std::move(call.error);
    ++num_ended_;
    ended_.push_back(std::move(calls_.extract(&call).mapped()));
  }

  void TakeResponse(Call& call) {
    const ModelStreamInferResponse& response = call.response;
    if (!response.error_message().empty()) {
      call.error = ErrorKind("stream", response.error_message());
      return;
    }
    const int64_t now = LoadNowNs();
    RequestOutcome& outcome = *call.outcome;
    const int num_tokens = CountTokens(call);
    if (num_tokens == 0) return;
    if (outcome.first_ns == 0)
      outcome.first_ns = now;
    else
      outcome.gaps_ns.push_back(now - call.last_ns);
    call.last_ns = now;
    outcome.num_tokens += num_tokens;
    ++outcome.num_chunks;
  }

  // Ids of the response; of a text model, a response with outputs is a token.
  int CountTokens(const Call& call) const {
    const auto& response = call.response.infer_response();
    if (prompts_[call.index].ids.empty()) return response.outputs_size() > 0 ? 1 : 0;
    for (const auto& output : response.outputs())
      if (output.name() == "output_ids" && output.shape_size() > 0)
        return static_cast<int>(output.shape(output.shape_size() - 1));
    return 0;
  }

  const LoadOptions& options_;
  const std::vector<LoadPrompt>& prompts_;
  std::vector<std::string> requests_;
  std::unordered_map<Call*, std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<Call>> ended_;
  int num_ended_ = 0;
  GrpcClient client_;  // tells the calls nothing when it goes
};

}  // namespace

Result<std::unique_ptr<LoadTransport>> CreateGrpcTransport(const LoadOptions& options,
                                                           const std::vector<LoadPrompt>& prompts) {
  std::unique_ptr<LoadTransport> transport = std::make_unique<GrpcTransport>(options, prompts);
  return transport;
}

}  // namespace inflight::bench
