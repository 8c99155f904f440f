// SPDX-License-Identifier: Apache-2.0
#include "shadow/compare.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::shadow {
namespace {

using http_client::Answer;

Answer Json(const std::string& body, int status = 200) {
  return {.status = status, .headers = {{"content-type", "application/json"}}, .body = body};
}

Answer Stream(const std::string& body) {
  return {.status = 200,
          .headers = {{"Content-Type", "text/event-stream; charset=utf-8"}},
          .body = body};
}

// "kind place: old | new", a line each.
std::string Differences(const Answer& a, const Answer& b, const CompareRules& rules = {}) {
  std::string lines;
  for (const Difference& d : Compare(a, b, rules))
    lines += std::string(NameOf(d.kind)) + " " + d.place + ": " + d.old_value + " | " +
             d.new_value + "\n";
  return lines;
}

TEST(CompareTest, OrderAndSpellingOfJsonAreFree) {
  EXPECT_EQ(Differences(Json(R"({"a":1,"b":[1.0,2]})"), Json(R"({ "b": [1, 2.00001], "a": 1 })")),
            "");
}

TEST(CompareTest, StatusAndTypeAreToldApart) {
  Answer html = Json("{}", 404);
  html.headers[0].second = "text/html";
  EXPECT_EQ(Differences(Json("{}"), html),
            "status : 200 | 404\ntype : \"application/json\" | \"text/html\"\n");
}

TEST(CompareTest, TensorsAreFoundByTheirNames) {
  const char* a =
      R"({"outputs":[{"name":"A","shape":[2],"data":[1.0,2.5]},{"name":"B","data":[7]}]})";
  const char* b =
      R"({"outputs":[{"name":"B","data":[8]},{"name":"A","shape":[2],"data":[1.0,2.6]}]})";
  EXPECT_EQ(Differences(Json(a), Json(b)),
            "tensors outputs.A.data[1]: 2.5 | 2.6\ntensors outputs.B.data[0]: 7 | 8\n");
  EXPECT_EQ(Differences(Json(a), Json(b), {.tolerance = 0.1}),
            "tensors outputs.B.data[0]: 7 | 8\n");
}

TEST(CompareTest, BinaryTensorsAreNumbersOrBytes) {
  const auto answer = [](const std::string& reals, const std::string& bytes) {
    const std::string json =
        R"({"outputs":[{"name":"A","datatype":"FP32","parameters":{"binary_data_size":4}},)"
        R"({"name":"B","datatype":"BYTES","parameters":{"binary_data_size":5}}]})";
    return Answer{.status = 200,
                  .headers = {{"Inference-Header-Content-Length", std::to_string(json.size())}},
                  .body = json + reals + bytes};
  };
  const std::string one("\0\0\x80\x3f", 4);
  const std::string nearly("\1\0\x80\x3f", 4);
  const std::string two("\0\0\0\x40", 4);
  const std::string x("\1\0\0\0x", 5);
  const std::string y("\1\0\0\0y", 5);
  EXPECT_EQ(Differences(answer(one, x), answer(nearly, x)), "");
  const auto found = Compare(answer(one, x), answer(two, y), {});
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].place, "outputs.A.data[0]");
  EXPECT_EQ(found[0].new_value, "2.0");
  EXPECT_EQ(found[1].place, "outputs.B.data");
}

TEST(CompareTest, TextsAreShownFromWhereTheyDiffer) {
  EXPECT_EQ(Differences(Json(R"({"text_output":"one two"})"), Json(R"({"text_output":"one too"})")),
            "text text_output[5]: \"one two\" | \"one too\"\n");
}

TEST(CompareTest, StreamsAreComparedAsATextAndByTheirEnd) {
  const std::string a =
      "data: {\"text_output\":\"a b\",\"i\":0}\n\ndata: {\"text_output\":\" c\",\"i\":1}\n\n";
  const std::string recut =
      "data: {\"text_output\":\"a\",\"i\":0}\n\ndata: {\"text_output\":\" b c\",\"i\":1}\n\n";
  EXPECT_EQ(Differences(Stream(a), Stream(recut)), "");
  const std::string other = "data: {\"text_output\":\"a d\"}\n\n";
  EXPECT_EQ(
      Differences(Stream(a), Stream(other)),
      "text text[2]: \"a b c\" | \"a d\"\nfinish events: 2 | 1\nfinish last.i: 1 | \"(none)\"\n");
}

TEST(CompareTest, IgnoredMembersMayDiffer) {
  EXPECT_EQ(Differences(Json(R"({"id":"1","a":{"id":2}})"), Json(R"({"id":"3","a":{}})"),
                        {.ignored = {"id"}}),
            "");
}

TEST(CompareTest, WhatIsNoJsonIsText) {
  EXPECT_EQ(Differences(Json("abc"), Json("abd")), "body [2]: \"abc\" | \"abd\"\n");
}

}  // namespace
}  // namespace inflight::shadow
