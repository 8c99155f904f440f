// SPDX-License-Identifier: Apache-2.0
#include "simulation/server/simulated_client.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "protocol/grpc_client/grpc_client.h"

namespace inflight::testing {
namespace {

using Kind = AskedRequest::Kind;

End EndOf(Judgement judgement) {
  switch (judgement) {
    case Judgement::kRight:
      return End::kRight;
    case Judgement::kRefused:
      return End::kRefused;
    case Judgement::kWrong:
      break;
  }
  return End::kWrong;
}

class HttpSide final : public SimulatedClient {
 public:
  HttpSide(const Judge& judge, EndSink on_end)
      : judge_(judge), on_end_(std::move(on_end)), http_(wire_.TakeClientEnd()) {}

  bool MayAsk() const override { return !asked_ && !IsOver(); }
  void Ask(AskedRequest asked) override {
    http_.Send(HttpBytes(asked));
    asked_ = std::move(asked);
  }
  std::vector<uint64_t> Pending() const override {
    return asked_ ? std::vector<uint64_t>{asked_->seed} : std::vector<uint64_t>{};
  }
  bool IsWaiting() const override { return asked_.has_value(); }

  void PollOnce() override {
    http_.PollOnce();
    if (auto answer = http_.TakeAnswer()) {
      is_closing_ |= !answer->keeps_connection();
      if (!asked_) return on_end_({.text = "over HTTP: " + answer->body()}, End::kWrong);
      const AskedRequest asked = *std::exchange(asked_, std::nullopt);
      on_end_(asked, EndOf(judge_.OfHttp(asked, *answer)));
    } else if (asked_ && http_.IsOver()) {
      on_end_(*std::exchange(asked_, std::nullopt), End::kClosed);
    }
  }
  void GiveUp() override {
    if (asked_) on_end_(*std::exchange(asked_, std::nullopt), End::kGone);
  }
  bool IsOver() const override { return is_closing_ || http_.IsOver() || wire_.is_cut(); }

 private:
  const Judge& judge_;
  const EndSink on_end_;
  HttpClient http_;
  std::optional<AskedRequest> asked_;
  bool is_closing_ = false;
};

// The ids of a response, behind those that are there.
void AppendIds(const ::inference::ModelInferResponse& response, std::vector<TokenId>& ids) {
  for (int i = 0; i < response.outputs_size() && i < response.raw_output_contents_size(); ++i) {
    if (response.outputs(i).name() != "output_ids") continue;
    const std::string& bytes = response.raw_output_contents(i);
    if (bytes.empty()) continue;
    const size_t before = ids.size();
    ids.resize(before + bytes.size() / sizeof(TokenId));
    std::memcpy(ids.data() + before, bytes.data(), bytes.size());
  }
}

// The connection has gone, or the call was reset without a status.
bool IsClosed(const grpc_client::GrpcEnd& end) {
  return end.message == "the connection was lost" || end.message.starts_with("HTTP ");
}

bool IsCodeOfRefusal(int code) {
  return code != 0 && code != static_cast<int>(StatusCode::kUnknown);
}

// Each request is a call.
class CallSide final : public SimulatedClient {
 public:
  CallSide(const Judge& judge, EndSink on_end)
      : judge_(judge), on_end_(std::move(on_end)), grpc_(wire_.TakeClientEnd()) {}

  bool MayAsk() const override { return calls_.size() < 4 && !IsOver(); }
  void Ask(AskedRequest asked) override {
    const uint64_t seed = asked.seed;
    const std::string message = GrpcMessage(asked).SerializeAsString();
    auto& call =
        *calls_.emplace(seed, std::make_unique<Call>(*this, std::move(asked))).first->second;
    call.id = grpc_.Start("/inference.GRPCInferenceService/ModelInfer", message, /*is_only=*/true,
                          call, /*deadline_ns=*/0);
  }
  std::vector<uint64_t> Pending() const override {
    std::vector<uint64_t> seeds;
    for (const auto& [seed, call] : calls_) seeds.push_back(seed);
    return seeds;
  }
  bool IsWaiting() const override { return !calls_.empty(); }
  void PollOnce() override {
    if (wire_.is_cut()) return;
    grpc_.PollOnce();
    finished_.clear();
  }
  void GiveUp() override {
    for (auto& [seed, call] : std::exchange(calls_, {})) {
      on_end_(call->asked, End::kGone);
      finished_.push_back(std::move(call));
    }
  }
  bool IsOver() const override { return is_lost_ || wire_.is_cut(); }
  uint64_t CancelOne() override {
    if (calls_.empty()) return 0;
    const auto& [seed, call] = *calls_.begin();
    call->is_cancelled = true;
    grpc_.Cancel(call->id);
    return seed;
  }

 private:
  struct Call : grpc_client::GrpcListener {
    Call(CallSide& side, AskedRequest request) : owner(side), asked(std::move(request)) {}
    void OnMessage(std::string_view bytes) override {
      ::inference::ModelInferResponse response;
      is_wrong |=
          has_message || !response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
      has_message = true;
      AppendIds(response, ids);
    }
    void OnEnd(const grpc_client::GrpcEnd& end) override { owner.OnCallEnd(*this, end); }

    CallSide& owner;
    const AskedRequest asked;
    grpc_client::GrpcClient::CallId id = 0;
    std::vector<TokenId> ids;
    bool has_message = false, is_wrong = false, is_cancelled = false;
  };

  void OnCallEnd(Call& call, const grpc_client::GrpcEnd& end) {
    auto node = calls_.extract(call.asked.seed);
    if (node.empty()) return;
    finished_.push_back(std::move(node.mapped()));  // it is still on the stack
    is_lost_ |= end.message == "the connection was lost";
    on_end_(call.asked, EndOfCall(call, end, IsClosed(end)));
  }
  End EndOfCall(const Call& call, const grpc_client::GrpcEnd& end, bool is_lost) const {
    if (call.is_wrong) return End::kWrong;
    if (call.is_cancelled) return End::kGone;
    if (is_lost) return End::kClosed;
    if (end.code != 0)
      return IsCodeOfRefusal(end.code) && !call.has_message ? End::kRefused : End::kWrong;
    if (!call.has_message || call.asked.kind == Kind::kNoModel) return End::kWrong;
    return EndOf(judge_.OfIds(call.asked, call.ids));
  }

  const Judge& judge_;
  const EndSink on_end_;
  grpc_client::GrpcClient grpc_;
  std::map<uint64_t, std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<Call>> finished_;
  bool is_lost_ = false;
};

// All requests go over one call.
class StreamSide final : public SimulatedClient, private grpc_client::GrpcListener {
 public:
  StreamSide(const Judge& judge, EndSink on_end)
      : judge_(judge), on_end_(std::move(on_end)), grpc_(wire_.TakeClientEnd()) {}

  bool MayAsk() const override { return requests_.size() < 4 && !IsOver(); }
  void Ask(AskedRequest asked) override {
    const std::string message = GrpcMessage(asked).SerializeAsString();
    const std::string id = std::to_string(asked.seed);
    requests_.emplace(id, Pended{std::move(asked), {}});
    if (call_ == 0) {
      call_ = grpc_.Start("/inference.GRPCInferenceService/ModelStreamInfer", message,
                          /*is_only=*/false, *this, /*deadline_ns=*/0);
    } else {
      grpc_.Write(call_, message);
    }
  }
  std::vector<uint64_t> Pending() const override {
    std::vector<uint64_t> seeds;
    for (const auto& [id, request] : requests_) seeds.push_back(request.asked.seed);
    return seeds;
  }
  bool IsWaiting() const override { return !requests_.empty(); }
  void PollOnce() override {
    if (!wire_.is_cut()) grpc_.PollOnce();
  }
  void GiveUp() override { EndAll(End::kGone); }
  bool IsOver() const override { return has_ended_ || wire_.is_cut(); }

 private:
  struct Pended {
    AskedRequest asked;
    std::vector<TokenId> ids;
  };

  void OnMessage(std::string_view bytes) override {
    ::inference::ModelStreamInferResponse message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return on_end_({.text = "over a gRPC stream: no message"}, End::kWrong);
    }
    const auto& response = message.infer_response();
    const auto found = requests_.find(response.id());
    if (found == requests_.end()) {
      return on_end_({.text = "over a gRPC stream: " + message.ShortDebugString()}, End::kWrong);
    }
    if (!message.error_message().empty()) return Finish(found, End::kRefused);
    AppendIds(response, found->second.ids);
    const auto& parameters = response.parameters();
    const auto final = parameters.find("triton_final_response");
    if (final == parameters.end() || !final->second.bool_param()) return;
    const Pended& request = found->second;
    const bool must_fail = request.asked.kind == Kind::kNoModel;
    Finish(found, must_fail ? End::kWrong : EndOf(judge_.OfIds(request.asked, request.ids)));
  }
  void OnEnd(const grpc_client::GrpcEnd& end) override {
    has_ended_ = true;
    EndAll(IsClosed(end) ? End::kClosed : IsCodeOfRefusal(end.code) ? End::kRefused : End::kWrong);
  }
  void Finish(std::map<std::string, Pended>::iterator request, End end) {
    const AskedRequest asked = std::move(request->second.asked);
    requests_.erase(request);
    on_end_(asked, end);
  }
  void EndAll(End end) {
    for (const auto& [id, request] : std::exchange(requests_, {})) on_end_(request.asked, end);
  }

  const Judge& judge_;
  const EndSink on_end_;
  grpc_client::GrpcClient grpc_;
  grpc_client::GrpcClient::CallId call_ = 0;
  std::map<std::string, Pended> requests_;
  bool has_ended_ = false;
};

}  // namespace

std::unique_ptr<SimulatedClient> MakeHttpClient(const Judge& judge,
                                                SimulatedClient::EndSink on_end) {
  return std::make_unique<HttpSide>(judge, std::move(on_end));
}

std::unique_ptr<SimulatedClient> MakeGrpcClient(const Judge& judge, SimulatedClient::EndSink on_end,
                                                bool streams) {
  if (streams) return std::make_unique<StreamSide>(judge, std::move(on_end));
  return std::make_unique<CallSide>(judge, std::move(on_end));
}

}  // namespace inflight::testing
