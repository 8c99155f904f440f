// SPDX-License-Identifier: Apache-2.0
#include "protocol/otlp/span_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace inflight::otlp {
namespace {

using nlohmann::json;
using serving::Trace;

struct Finished {
  serving::FinishedTrace trace;
  uint64_t next_id = 1;

  Trace Begin(serving::TraceContext context = {}) {
    return {{.timestamps = true},
            std::move(context),
            [this] { return next_id++; },
            [this](serving::FinishedTrace done) { trace = std::move(done); }};
  }
  std::vector<json> spans() {
    uint64_t id = 0xa0;
    std::vector<json> parsed;
    for (const std::string& span :
         Spans(trace, {.wall_clock_offset_ns = 1000, .random = [&] { return id++; }})) {
      parsed.push_back(json::parse(span));
    }
    return parsed;
  }
};

// Ensemble -> step, as HTTP would record it.
void RunEnsemble(const Trace& trace) {
  trace.Mark("HTTP_RECV_START", 1);
  trace.Mark("HTTP_RECV_END", 2);
  trace.SetModel("ensemble", "1", "r");
  trace.Mark("REQUEST_START", 3);
  const Trace step = trace.Child();
  step.SetModel("step", "4", "r");
  step.Mark("REQUEST_START", 4);
  step.AddSpan({.received_ns = 5,
                .compute_start_ns = 6,
                .compute_input_end_ns = 7,
                .compute_output_start_ns = 8,
                .finished_ns = 9});
  step.Mark("REQUEST_END", 10);
  trace.Mark("REQUEST_END", 11);
  trace.Mark("INFER_RESPONSE_COMPLETE", 12);
  trace.Mark("HTTP_SEND_START", 13);
  trace.Mark("HTTP_SEND_END", 14);
}

std::string Names(const json& span) {
  std::string names;
  for (const json& event : span["events"]) names += event["name"].get<std::string>() + " ";
  return names;
}

TEST(SpanJsonTest, ARootAModelAndItsStepWithItsComputing) {
  Finished finished;
  RunEnsemble(finished.Begin());
  const std::vector<json> spans = finished.spans();
  ASSERT_EQ(spans.size(), 4u);
  const char* names[] = {"InferRequest", "ensemble", "step", "compute"};
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["name"], names[i]);
    EXPECT_EQ(spans[i]["traceId"], spans[0]["traceId"]);
    if (i > 0) {
      EXPECT_EQ(spans[i]["parentSpanId"], spans[i - 1]["spanId"]);
    }
  }
  EXPECT_FALSE(spans[0].contains("parentSpanId"));
  EXPECT_EQ(Names(spans[0]),
            "HTTP_RECV_START HTTP_RECV_END INFER_RESPONSE_COMPLETE HTTP_SEND_START HTTP_SEND_END ");
  EXPECT_EQ(Names(spans[1]), "REQUEST_START REQUEST_END ");
  EXPECT_EQ(Names(spans[2]), "REQUEST_START QUEUE_START REQUEST_END ");
  EXPECT_EQ(Names(spans[3]), "COMPUTE_START COMPUTE_INPUT_END COMPUTE_OUTPUT_START COMPUTE_END ");
  EXPECT_EQ(spans[0]["startTimeUnixNano"], "1001");
  EXPECT_EQ(spans[0]["endTimeUnixNano"], "1014");
  EXPECT_EQ(spans[3]["startTimeUnixNano"], "1006");
}

TEST(SpanJsonTest, AttributesSayWhichModelRan) {
  Finished finished;
  RunEnsemble(finished.Begin());
  EXPECT_EQ(finished.spans()[2]["attributes"], json::parse(R"([
      {"key":"triton.model_name","value":{"stringValue":"step"}},
      {"key":"triton.model_version","value":{"intValue":"4"}},
      {"key":"triton.trace_id","value":{"intValue":"2"}},
      {"key":"triton.trace_parent_id","value":{"intValue":"1"}},
      {"key":"triton.request_id","value":{"stringValue":"r"}}])"));
}

// OpenTelemetry's "Semantic Conventions for Generative AI", "Spans".
TEST(SpanJsonTest, AGenerationHasTheAttributesOfTheConventions) {
  for (const bool is_chat : {false, true}) {
    Finished finished;
    {
      const Trace trace = finished.Begin();
      trace.SetModel("llm", "1", "");
      trace.Mark("REQUEST_START", 3);
      if (is_chat) trace.SetChat();
      trace.SetGeneration(
          {.num_input_tokens = 22, .num_output_tokens = 8, .finish_reason = "end_id"});
      trace.Mark("REQUEST_END", 4);
    }
    const json span = finished.spans().back();
    json attributes;
    for (const json& attribute : span["attributes"])
      attributes[attribute["key"].get<std::string>()] = attribute["value"];
    EXPECT_EQ(attributes["gen_ai.operation.name"]["stringValue"],
              is_chat ? "chat" : "text_completion");
    EXPECT_EQ(attributes["gen_ai.request.model"]["stringValue"], "llm");
    EXPECT_EQ(attributes["gen_ai.usage.input_tokens"]["intValue"], "22");
    EXPECT_EQ(attributes["gen_ai.usage.output_tokens"]["intValue"], "8");
    EXPECT_EQ(attributes["gen_ai.response.finish_reasons"],
              json::parse(R"({"arrayValue":{"values":[{"stringValue":"stop"}]}})"));
    EXPECT_FALSE(attributes.contains("gen_ai.response.id"));
  }
}

TEST(SpanJsonTest, AClientsContextIsTheParent) {
  const std::string id = "0af7651916cd43dd8448eb211c80319c";
  Finished finished;
  RunEnsemble(finished.Begin(
      {.traceparent = "00-" + id + "-b7ad6b7169203331-01", .tracestate = "vendor=x"}));
  const json root = finished.spans()[0];
  EXPECT_EQ(root["traceId"], id);
  EXPECT_EQ(root["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(root["traceState"], "vendor=x");
}

TEST(SpanJsonTest, AContextThatIsNoneBeginsATraceOfItsOwn) {
  for (const char* header : {"00-0af7651916cd43dd8448eb211c80319c", "x",
                             "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                             "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}) {
    Finished finished;
    RunEnsemble(finished.Begin({.traceparent = header}));
    const json root = finished.spans()[0];
    EXPECT_FALSE(root.contains("parentSpanId")) << header;
    EXPECT_EQ(root["traceId"], "00000000000000a000000000000000a1") << header;
  }
}

// U+FFFD, as in a file of traces.
TEST(SpanJsonTest, ABodyIsJsonWhateverBytesTextsHave) {
  Finished finished;
  {
    const Trace trace = finished.Begin({.tracestate = "vendor=\xFF"});
    trace.Mark("HTTP_RECV_START", 1);
    trace.SetModel("m\xFE", "1", "caf\xE9");
    trace.Mark("REQUEST_START", 2);
  }
  const std::vector<json> spans = finished.spans();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["traceState"], "vendor=\xEF\xBF\xBD");
  EXPECT_EQ(spans[1]["name"], "m\xEF\xBF\xBD");
  EXPECT_EQ(spans[1]["attributes"].back()["value"]["stringValue"], "caf\xEF\xBF\xBD");
  const json body = json::parse(ExportBody({{"key\x80", "\xC0value"}}, {}));
  EXPECT_EQ(body["resourceSpans"][0]["resource"]["attributes"][0],
            json::parse("{\"key\":\"key\xEF\xBF\xBD\",\"value\":"
                        "{\"stringValue\":\"\xEF\xBF\xBDvalue\"}}"));
}

TEST(SpanJsonTest, TheBodyOfAnExport) {
  EXPECT_EQ(json::parse(ExportBody({{"service.name", "a"}, {"service.name", "b"}},
                                   {R"({"name":"x"})", R"({"name":"y"})"})),
            json::parse(R"({"resourceSpans":[{
      "resource":{"attributes":[{"key":"service.name","value":{"stringValue":"b"}}]},
      "scopeSpans":[{"scope":{"name":"inflight"},"spans":[{"name":"x"},{"name":"y"}]}]}]})"));
}

}  // namespace
}  // namespace inflight::otlp
