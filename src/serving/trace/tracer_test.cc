// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "serving/trace/trace_text.h"

namespace inflight::serving {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

class TracerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           (std::string("inflight_") + info->name() + "_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override {
    tracer_.reset();
    std::filesystem::remove_all(dir_);
  }

  Tracer& Make(const TraceSettings& start) {
    return tracer_.emplace(TraceOptions{.start = start, .file = (dir_ / "trace.json").string()});
  }

  // The requests to `model` of which one in `num` was traced, by their place from 1 on.
  std::vector<int> Traced(const std::string& model, int num) {
    std::vector<int> traced;
    for (int i = 1; i <= num; ++i) {
      const Trace trace = tracer_->Sample(model);
      if (!trace) continue;
      traced.push_back(i);
      trace.SetModel(model, "1", "r" + std::to_string(i));
      trace.Mark("REQUEST_START", i);
    }
    return traced;
  }

  void Update(const std::string& model, const std::string& name,
              const std::vector<std::string>& values) {
    TraceUpdate update;
    ASSERT_TRUE(ChangeTraceSetting(name, values, TraceWords::kHttp, update).ok());
    tracer_->Update(model, update);
  }
  std::string Setting(const std::string& model, const std::string& name) const {
    for (const auto& [key, values] : tracer_->Describe(model)) {
      if (key == name) return values.front();
    }
    return "none";
  }

  // The ids of the requests in a file, once all is written.
  std::vector<std::string> RequestsOf(const std::string& file) {
    tracer_.reset();
    const auto text = ReadFile(dir_ / file);
    if (!text.ok()) return {"no file"};
    std::vector<std::string> ids;
    for (const json& element : json::parse(*text)) {
      if (element.contains("request_id")) ids.push_back(element["request_id"]);
    }
    return ids;
  }

  std::filesystem::path dir_;
  std::optional<Tracer> tracer_;
};

constexpr TraceLevels kTimestamps = {.timestamps = true};

TEST_F(TracerTest, NothingIsTracedWhileOff) {
  Make({.rate = 1});
  EXPECT_FALSE(tracer_->is_on());
  EXPECT_THAT(Traced("m", 3), ElementsAre());
}

TEST_F(TracerTest, EveryNthRequestOfAllModelsTogether) {
  Make({.levels = kTimestamps, .rate = 3});
  EXPECT_THAT(Traced("a", 4), ElementsAre(3));
  EXPECT_THAT(Traced("b", 3), ElementsAre(2));
  EXPECT_THAT(RequestsOf("trace.json"), ElementsAre("r3", "r2"));
}

TEST_F(TracerTest, RateZeroTracesNothing) {
  Make({.levels = kTimestamps, .rate = 0});
  EXPECT_THAT(Traced("m", 3), ElementsAre());
}

TEST_F(TracerTest, ACountEndsTracingAndCompletesAFile) {
  Make({.levels = kTimestamps, .rate = 1, .count = 2});
  EXPECT_THAT(Traced("m", 4), ElementsAre(1, 2));
  EXPECT_EQ(Setting("", "trace_count"), "0");
  Update("", "trace_count", {"1"});
  EXPECT_THAT(Traced("m", 2), ElementsAre(1));
  EXPECT_THAT(RequestsOf("trace.json.0"), ElementsAre("r1", "r2"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "trace.json"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "trace.json.1"));
}

TEST_F(TracerTest, TheLogFrequencyCutsFiles) {
  Make({.levels = kTimestamps, .rate = 1, .log_frequency = 2});
  EXPECT_THAT(Traced("m", 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(RequestsOf("trace.json.0"), ElementsAre("r1", "r2"));
}

TEST_F(TracerTest, WhatIsLeftAtTheEndIsAFileOfItsOwn) {
  Make({.levels = kTimestamps, .rate = 1, .log_frequency = 2});
  Traced("m", 3);
  EXPECT_THAT(RequestsOf("trace.json.1"), ElementsAre("r3"));
}

TEST_F(TracerTest, AModelsSettingStandsBeforeThatOfAll) {
  Make({.levels = kTimestamps, .rate = 1000});
  Update("m", "trace_rate", {"2"});
  EXPECT_THAT(Traced("m", 4), ElementsAre(2, 4));
  EXPECT_THAT(Traced("other", 4), ElementsAre());
  Update("", "trace_rate", {"4"});
  EXPECT_EQ(Setting("m", "trace_rate"), "2");
  EXPECT_EQ(Setting("other", "trace_rate"), "4");
  Update("m", "trace_rate", {});
  EXPECT_EQ(Setting("m", "trace_rate"), "4");
  Update("", "trace_rate", {});
  EXPECT_EQ(Setting("m", "trace_rate"), "1000");
}

TEST_F(TracerTest, AModelMayBeTracedAlone) {
  Make({.rate = 1});
  Update("m", "trace_level", {"TIMESTAMPS"});
  EXPECT_THAT(Traced("m", 1), ElementsAre(1));
  EXPECT_THAT(Traced("other", 1), ElementsAre());
  Update("m", "trace_level", {});
  EXPECT_FALSE(tracer_->is_on());
}

TEST_F(TracerTest, AnUpdateAboutSomethingElseKeepsWhatACountHasLeft) {
  Make({.levels = kTimestamps, .rate = 1, .count = 5});
  Traced("m", 2);
  Update("", "trace_rate", {"2"});
  EXPECT_EQ(Setting("", "trace_count"), "3");
}

TEST_F(TracerTest, ATraceOutlivesTheSettingsItBeganUnder) {
  Make({.levels = kTimestamps, .rate = 1});
  {
    const Trace trace = tracer_->Sample("m");
    trace.SetModel("m", "1", "late");
    Update("", "trace_level", {"OFF"});
    trace.Mark("REQUEST_START", 1);
  }
  EXPECT_THAT(RequestsOf("trace.json"), ElementsAre("late"));
}

TEST(TraceSettingsTest, FaultyTextsInTheWordsThatClientsCompare) {
  const auto error = [](const char* name, std::vector<std::string> values) {
    TraceUpdate update;
    return ChangeTraceSetting(name, values, TraceWords::kHttp, update).message();
  };
  EXPECT_EQ(error("trace_rate", {"abc"}), "Unable to parse 'trace_rate', got: abc");
  EXPECT_EQ(error("trace_rate", {"99999999999999999999"}),
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: "
            "99999999999999999999");
  EXPECT_EQ(error("trace_count", {"-2"}),
            "Unable to parse 'trace_count'. Expecting value >= -1, got:-2");
  EXPECT_EQ(error("trace_rate", {"6", "7"}), "expect only 1 value for 'trace_rate'");
  EXPECT_EQ(error("trace_level", {"OFF", "TENSORS"}),
            "Expect only one trace level 'OFF' is specified");
  EXPECT_EQ(error("no_setting", {"x"}), "");
}

TEST(TraceSettingsTest, NegativeNumbersWrapAsInC) {
  TraceUpdate update;
  ASSERT_TRUE(ChangeTraceSetting("trace_rate", {"-1"}, TraceWords::kHttp, update).ok());
  EXPECT_EQ(update.rate.value, 4294967295u);
  ASSERT_TRUE(ChangeTraceSetting("log_frequency", {"-10"}, TraceWords::kHttp, update).ok());
  EXPECT_EQ(update.log_frequency.value, 4294967286u);
  ASSERT_TRUE(ChangeTraceSetting("trace_rate", {"1.5"}, TraceWords::kHttp, update).ok());
  EXPECT_EQ(update.rate.value, 1u);
}

FinishedTrace OneTrace(TraceLevels levels, const std::function<void(const Trace&)>& fill) {
  FinishedTrace finished;
  uint64_t next_id = 1;
  {
    const Trace trace(
        levels, {}, [&] { return next_id++; },
        [&](FinishedTrace done) { finished = std::move(done); });
    fill(trace);
  }
  return finished;
}

TEST(TraceTest, EventsAreInOrderOfTimeBehindWhoRan) {
  const FinishedTrace trace = OneTrace(kTimestamps, [](const Trace& t) {
    t.SetModel("m", "2", "r");
    t.AddSpan({.received_ns = 10,
               .compute_start_ns = 20,
               .compute_input_end_ns = 30,
               .compute_output_start_ns = 40,
               .finished_ns = 50});
    t.Mark("HTTP_RECV_START", 5);
    t.AddTensors("TENSOR_QUEUE_INPUT", {});
  });
  EXPECT_EQ("[" + TraceJson(trace) + "]",
            R"([{"id":1,"model_name":"m","model_version":2,"request_id":"r"},)"
            R"({"id":1,"timestamps":[{"name":"HTTP_RECV_START","ns":5}]},)"
            R"({"id":1,"timestamps":[{"name":"QUEUE_START","ns":10}]},)"
            R"({"id":1,"timestamps":[{"name":"COMPUTE_START","ns":20}]},)"
            R"({"id":1,"timestamps":[{"name":"COMPUTE_INPUT_END","ns":30}]},)"
            R"({"id":1,"timestamps":[{"name":"COMPUTE_OUTPUT_START","ns":40}]},)"
            R"({"id":1,"timestamps":[{"name":"COMPUTE_END","ns":50}]}])");
}

TEST(TraceTest, ChildrenNameTheirParent) {
  const FinishedTrace trace = OneTrace(kTimestamps, [](const Trace& t) {
    t.SetModel("ensemble", "1", "");
    const Trace child = t.Child();
    child.SetModel("step", "3", "");
    child.Mark("REQUEST_START", 7);
    child.Child().SetModel("inner", "1", "");
  });
  EXPECT_EQ("[" + TraceJson(trace) + "]",
            R"([{"id":1,"model_name":"ensemble","model_version":1},)"
            R"({"id":2,"model_name":"step","model_version":3,"parent_id":1},)"
            R"({"id":2,"timestamps":[{"name":"REQUEST_START","ns":7}]},)"
            R"({"id":3,"model_name":"inner","model_version":1,"parent_id":2}])");
}

TEST(TraceTest, TensorsWithTheirElementsAndNoTimesWhereOnlyTheyAreAsked) {
  const FinishedTrace trace = OneTrace({.tensors = true}, [](const Trace& t) {
    t.SetModel("m", "1", "");
    t.Mark("REQUEST_START", 7);
    const int32_t ints[] = {1, -2};
    const float floats[] = {0.5F, 2};
    const std::string texts[] = {"a", "b\"\xff"};
    const Tensor tensors[] = {Tensor::FromValues<int32_t>("I", DataType::kInt32, {1, 2}, ints),
                              Tensor::FromValues<float>("F", DataType::kFp32, {2}, floats),
                              Tensor::FromStrings("T", {2}, texts)};
    t.AddTensors("TENSOR_QUEUE_INPUT", tensors);
  });
  const json elements = json::parse("[" + TraceJson(trace) + "]");
  ASSERT_EQ(elements.size(), 4u);
  EXPECT_EQ(elements[1], json::parse(R"({"id":1,"activity":"TENSOR_QUEUE_INPUT","tensor":
      {"name":"I","data":"1,-2","shape":"1,2","dtype":"INT32"}})"));
  EXPECT_EQ(elements[2]["tensor"]["data"], "0.5,2");
  EXPECT_EQ(elements[3]["tensor"]["data"], "\"a\",\"b\"\xef\xbf\xbd\"");
  EXPECT_EQ(elements[3]["tensor"]["dtype"], "BYTES");
}

TEST(TraceTest, AnEmptyHandleTakesEveryCall) {
  const Trace none;
  none.SetModel("m", "1", "r");
  none.Mark("REQUEST_START");
  none.AddSpan({});
  none.AddTensors("TENSOR_QUEUE_INPUT", {});
  EXPECT_FALSE(none.Child());
}

}  // namespace
}  // namespace inflight::serving
