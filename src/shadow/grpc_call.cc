// SPDX-License-Identifier: Apache-2.0
#include "shadow/grpc_call.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/base64.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "grpc_service.pb.h"

namespace inflight::shadow {
namespace {

using google::protobuf::Message;
using google::protobuf::MethodDescriptor;
using grpc_client::GrpcClient;
using grpc_client::GrpcEnd;
using nlohmann::json;

constexpr std::string_view kScheme = "grpc://";
constexpr std::string_view kTlsScheme = "grpcs://";
constexpr char kService[] = "inference.GRPCInferenceService";

// Null where the service has no such call.
const MethodDescriptor* FindMethod(const std::string& name) {
  const auto* file = inference::ModelInferRequest::descriptor()->file();
  const auto* service = file->FindServiceByName("GRPCInferenceService");
  return service->FindMethodByName(name);
}

// Of "/inference.GRPCInferenceService/ModelInfer"; null for another service's.
const MethodDescriptor* MethodAt(std::string_view path) {
  const std::string begin = "/" + std::string(kService) + "/";
  return path.starts_with(begin) ? FindMethod(std::string(path.substr(begin.size()))) : nullptr;
}

std::unique_ptr<Message> NewMessage(const google::protobuf::Descriptor* type) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

Result<std::string> Serialized(const MethodDescriptor& method, const json& message) {
  const auto made = NewMessage(method.input_type());
  const auto parsed = google::protobuf::util::JsonStringToMessage(message.dump(), made.get());
  if (!parsed.ok()) return InvalidArgument("message", parsed.ToString());
  return made->SerializeAsString();
}

Result<std::vector<std::string>> MessagesOf(const json& line, const MethodDescriptor& method) {
  if (line.contains("message") + line.contains("messages") + line.contains("messages_base64") != 1)
    return InvalidArgument("a call has one of message, messages and messages_base64");
  const char* const name = line.contains("message")    ? "message"
                           : line.contains("messages") ? "messages"
                                                       : "messages_base64";
  const json given = line.contains("message") ? json::array({line["message"]}) : line[name];
  if (!given.is_array() || given.empty())
    return InvalidArgument(name, "a list of at least one is needed");
  if (given.size() > 1 && !method.client_streaming())
    return InvalidArgument(name, method.name() + " takes one message");
  std::vector<std::string> messages;
  for (const json& message : given) {
    if (!line.contains("messages_base64")) {
      ASSIGN_OR_RETURN(std::string bytes, Serialized(method, message));
      messages.push_back(std::move(bytes));
      continue;
    }
    auto decoded = message.is_string() ? DecodeBase64(message.get<std::string>()) : std::nullopt;
    if (!decoded) return InvalidArgument(name, "texts of base64 are needed");
    messages.push_back(*std::move(decoded));
  }
  return messages;
}

Result<grpc_client::Metadata> MetadataOf(const json& line) {
  const json given = line.value("metadata", json::object());
  if (!given.is_object()) return InvalidArgument("metadata", "an object of texts is needed");
  grpc_client::Metadata metadata;
  for (const auto& [name, value] : given.items()) {
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    });
    if (!is_name)
      return InvalidArgument("metadata." + name,
                             "a name of small letters, digits, -, _ and . is needed");
    if (!value.is_string() || value.get<std::string>().find_first_of("\r\n") != std::string::npos)
      return InvalidArgument("metadata." + name, "a text of one line is needed");
    metadata.emplace_back(name, value.get<std::string>());
  }
  return metadata;
}

// --- answers ---

template <typename T>
json Numbers(std::string_view bytes) {
  json values = json::array();
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    values.push_back(value);
  }
  return values;
}

json Texts(std::string_view bytes) {
  json texts = json::array();
  while (bytes.size() >= sizeof(uint32_t)) {
    uint32_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    bytes.remove_prefix(sizeof(length));
    texts.push_back(bytes.substr(0, length));
    bytes.remove_prefix(std::min<size_t>(length, bytes.size()));
  }
  return texts;
}

// Bytes of other types as base64: they are compared, not read.
json DataOf(const std::string& datatype, const std::string& bytes) {
  if (datatype == "BYTES") return Texts(bytes);
  if (datatype == "FP32") return Numbers<float>(bytes);
  if (datatype == "FP64") return Numbers<double>(bytes);
  if (datatype == "INT32") return Numbers<int32_t>(bytes);
  if (datatype == "INT64") return Numbers<int64_t>(bytes);
  if (datatype == "UINT8" || datatype == "BOOL") return Numbers<uint8_t>(bytes);
  return EncodeBase64(bytes);
}

json ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions names;
  names.preserve_proto_field_names = true;
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(message, &text, names);
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  return object.is_discarded() ? json(text) : object;
}

json OfResponse(inference::ModelInferResponse response) {
  std::vector<json> data;
  for (int i = 0; i < std::min(response.raw_output_contents_size(), response.outputs_size()); ++i)
    data.push_back(DataOf(response.outputs(i).datatype(), response.raw_output_contents(i)));
  response.clear_raw_output_contents();
  json object = ToJson(response);
  for (size_t i = 0; i < data.size(); ++i) object["outputs"][i]["data"] = std::move(data[i]);
  return object;
}

// A response of a stream as an event: outputs of one text as members, as generate_stream has them.
json OfStreamResponse(const inference::ModelStreamInferResponse& response) {
  json event = OfResponse(response.infer_response());
  if (!response.error_message().empty()) event["error"] = response.error_message();
  json others = json::array();
  for (json& output : event.value("outputs", json::array())) {
    const json data = output.value("data", json());
    const bool is_text = data.is_array() && data.size() == 1 && data[0].is_string();
    if (is_text && !event.contains(output["name"].get<std::string>()))
      event[output["name"].get<std::string>()] = data[0];
    else
      others.push_back(std::move(output));
  }
  event["outputs"] = std::move(others);
  return event;
}

json OfMessage(const MethodDescriptor* method, const std::string& bytes) {
  if (method == nullptr) return EncodeBase64(bytes);
  const auto message = NewMessage(method->output_type());
  if (!message->ParseFromString(bytes)) return EncodeBase64(bytes);
  if (const auto* infer = dynamic_cast<const inference::ModelInferResponse*>(message.get()))
    return OfResponse(*infer);
  if (const auto* stream = dynamic_cast<const inference::ModelStreamInferResponse*>(message.get()))
    return OfStreamResponse(*stream);
  return ToJson(*message);
}

std::string Dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

double MsSince(int64_t started_ns) {
  return static_cast<double>(Clock::System().NowNs() - started_ns) / 1e6;
}

class Asked : public grpc_client::GrpcListener {
 public:
  Asked(int64_t started_ns, size_t max_bytes) : started_ns_(started_ns), max_bytes_(max_bytes) {}

  void OnMessage(std::string_view bytes) override {
    if (responses.empty()) first_ms = MsSince(started_ns_);
    num_bytes_ += bytes.size();
    if (is_too_large()) return;
    responses.emplace_back(bytes);
  }
  void OnEnd(const GrpcEnd& its_end) override {
    end = its_end;
    total_ms = MsSince(started_ns_);
    if (responses.empty()) first_ms = total_ms;
    has_ended = true;
  }
  bool is_too_large() const { return num_bytes_ > max_bytes_; }

  std::vector<std::string> responses;
  GrpcEnd end;
  bool has_ended = false;
  double first_ms = 0;
  double total_ms = 0;

 private:
  const int64_t started_ns_;
  const size_t max_bytes_;
  size_t num_bytes_ = 0;
};

Reply Ask(GrpcClient& server, const RecordedCall& call, const ShadowOptions& options) {
  constexpr int64_t kPollNs = 100'000'000;
  const int64_t started_ns = Clock::System().NowNs();
  const int64_t timeout_ns = std::chrono::nanoseconds(options.timeout).count();
  Asked asked(started_ns, options.max_answer_bytes);
  const bool is_only = call.messages.size() == 1;
  const auto id = server.Start(call.path, call.messages.front(), is_only, asked,
                               started_ns + timeout_ns, call.metadata);
  for (size_t i = 1; i < call.messages.size(); ++i) server.Write(id, call.messages[i]);
  if (!is_only) server.EndWrites(id);
  bool is_cancelled = false;
  while (!asked.has_ended) {
    server.Poll(Clock::System().NowNs() + kPollNs);
    if (!asked.is_too_large() || is_cancelled) continue;
    server.Cancel(id);
    is_cancelled = true;
  }
  Reply reply{.first_ms = asked.first_ms, .total_ms = asked.total_ms};
  if (asked.is_too_large()) {
    reply.answer = ResourceExhausted("the answer is larger than " +
                                     std::to_string(options.max_answer_bytes) + " bytes");
  } else {
    reply.answer = AnswerOrFailure(call.path, asked.responses, asked.end);
  }
  return reply;
}

}  // namespace

Result<RecordedCall> ParseRecordedCall(const std::string& line) {
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return InvalidArgument("it is no JSON object");
  const json rpc = object.value("rpc", json());
  if (!rpc.is_string())
    return InvalidArgument("rpc", "the name of a call is needed, such as ModelInfer");
  const MethodDescriptor* method = FindMethod(rpc.get<std::string>());
  if (method == nullptr)
    return InvalidArgument(
        "rpc", "got '" + rpc.get<std::string>() + "', " + kService + " has no such call");
  RecordedCall call;
  call.path = "/" + std::string(kService) + "/" + method->name();
  ASSIGN_OR_RETURN(call.messages, MessagesOf(object, *method));
  ASSIGN_OR_RETURN(call.metadata, MetadataOf(object));
  return call;
}

std::string WriteRecordedCall(const RecordedCall& call) {
  const MethodDescriptor* method = MethodAt(call.path);
  if (method == nullptr) return {};
  json line = {{"rpc", method->name()}, {"messages_base64", json::array()}};
  for (const std::string& message : call.messages)
    line["messages_base64"].push_back(EncodeBase64(message));
  for (const auto& [name, value] : call.metadata) line["metadata"][name] = value;
  return Dumped(line);
}

bool IsStream(const std::string& path) {
  const MethodDescriptor* method = MethodAt(path);
  return method != nullptr && method->server_streaming();
}

bool IsGrpcUrl(std::string_view url) {
  return url.starts_with(kScheme) || url.starts_with(kTlsScheme);
}

Result<GrpcAddress> ParseGrpcUrl(std::string_view url) {
  GrpcAddress address = {.host = {}, .is_tls = url.starts_with(kTlsScheme)};
  std::string_view rest = url.substr((address.is_tls ? kTlsScheme : kScheme).size());
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos) {
    const std::string_view port = rest.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc{} || end != port.data() + port.size()) address.port = 0;
    rest = rest.substr(0, colon);
  }
  if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
  address.host = rest;
  if (address.host.empty() || address.port < 1 || address.port > 65535 ||
      rest.find('/') != std::string_view::npos)
    return InvalidArgument("got '" + std::string(url) +
                           "', such as grpc://localhost:8001 is needed");
  return address;
}

http_client::Answer AnswerOf(const std::string& path, const std::vector<std::string>& responses,
                             const GrpcEnd& end) {
  const MethodDescriptor* method = MethodAt(path);
  http_client::Answer answer;
  answer.status = end.code;
  const bool is_stream = IsStream(path);
  answer.headers = {{"Content-Type", is_stream ? "text/event-stream" : "application/json"}};
  if (is_stream) {
    for (const std::string& bytes : responses)
      answer.body += "data: " + Dumped(OfMessage(method, bytes)) + "\n\n";
    if (end.code != 0) answer.body += "data: " + Dumped({{"error", end.message}}) + "\n\n";
  } else if (end.code != 0 || responses.empty()) {
    answer.body = Dumped({{"error", end.message}});
  } else {
    answer.body = Dumped(OfMessage(method, responses.front()));
  }
  return answer;
}

Result<http_client::Answer> AnswerOrFailure(const std::string& path,
                                            const std::vector<std::string>& responses,
                                            const GrpcEnd& end) {
  if (!end.is_from_server) return Unavailable(end.message);
  return AnswerOf(path, responses, end);
}

Outcome CallBoth(GrpcClient& old_server, GrpcClient& new_server, const RecordedCall& call,
                 const ShadowOptions& options) {
  Outcome outcome;
  outcome.request = {.method = "gRPC", .path = call.path, .headers = {}, .body = {}};
  std::thread other([&] { outcome.new_reply = Ask(new_server, call, options); });
  outcome.old_reply = Ask(old_server, call, options);
  other.join();
  if (!outcome.HasFailed())
    outcome.differences =
        Compare(*outcome.old_reply.answer, *outcome.new_reply.answer, options.rules);
  return outcome;
}

}  // namespace inflight::shadow
