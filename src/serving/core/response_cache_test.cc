// SPDX-License-Identifier: Apache-2.0
#include "serving/core/response_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace inflight::serving {
namespace {

using ::testing::HasSubstr;

constexpr Identity kOne = {1};
constexpr Identity kTwo = {2};

Tensor Texts(const std::string& name, const std::vector<std::string>& strings) {
  return Tensor::FromStrings(name, {static_cast<int64_t>(strings.size())}, strings);
}

Response Answer(const std::string& text) {
  Response response;
  response.outputs.push_back(Texts("OUT", {text}));
  return response;
}

std::string TextOf(const std::shared_ptr<const CachedResponse>& cached) {
  if (cached == nullptr) return "none";
  return std::string(cached->outputs.front().Strings()->front());
}

TEST(ResponseCacheTest, GivesWhatWasInserted) {
  ResponseCache cache(1 << 20);
  EXPECT_EQ(cache.Find("k"), nullptr);
  cache.Insert(kOne, "k", Answer("a"));
  EXPECT_EQ(TextOf(cache.Find("k")), "a");
  EXPECT_EQ(cache.Find("other"), nullptr);
}

TEST(ResponseCacheTest, OutlivesTheBytesOfItsRequest) {
  ResponseCache cache(1 << 20);
  {
    std::string bytes("\1\0\0\0x", 5);
    Response response;
    response.outputs.push_back({.name = "OUT",
                                .datatype = DataType::kBytes,
                                .shape = {1},
                                .data = std::as_bytes(std::span(bytes)),
                                .owner = nullptr});
    cache.Insert(kOne, "k", response);
    bytes.assign(5, '\0');
  }
  EXPECT_EQ(TextOf(cache.Find("k")), "x");
}

TEST(ResponseCacheTest, TheLeastRecentlyUsedMakesRoom) {
  ResponseCache cache(3 * 1024);
  const std::string large(700, 'x');
  for (const char* key : {"a", "b", "c"}) cache.Insert(kOne, key, Answer(key + large));
  EXPECT_NE(cache.Find("a"), nullptr);
  cache.Insert(kOne, "d", Answer("d" + large));
  EXPECT_EQ(cache.Find("b"), nullptr);
  EXPECT_NE(cache.Find("a"), nullptr);
  EXPECT_NE(cache.Find("c"), nullptr);
  EXPECT_NE(cache.Find("d"), nullptr);
  EXPECT_LE(cache.used_bytes(), 3u * 1024);
}

TEST(ResponseCacheTest, AClientThatAsksForMuchPushesOutItsOwnAlone) {
  ResponseCache cache(8 * 1024);
  const std::string large(700, 'x');
  cache.Insert(kOne, "one", Answer("one" + large));
  for (int i = 0; i < 100; ++i) cache.Insert(kTwo, std::to_string(i), Answer("two" + large));
  EXPECT_NE(cache.Find("one"), nullptr);
  EXPECT_EQ(cache.Find("0"), nullptr);
  EXPECT_NE(cache.Find("99"), nullptr);
  cache.Insert(kOne, "more", Answer("one" + large));
  EXPECT_NE(cache.Find("one"), nullptr);
  EXPECT_NE(cache.Find("more"), nullptr);
  EXPECT_LE(cache.used_bytes(), 8U * 1024);
}

TEST(ResponseCacheTest, WhatIsLargerThanAllOfItIsNotKept) {
  ResponseCache cache(2048);
  cache.Insert(kOne, "small", Answer("x"));
  cache.Insert(kOne, "large", Answer(std::string(4096, 'x')));
  EXPECT_EQ(cache.Find("large"), nullptr);
  EXPECT_NE(cache.Find("small"), nullptr);
}

// A receipt of an answer is longer than the answer.
TEST(ResponseCacheTest, ParametersTakeTheirRoomToo) {
  ResponseCache cache(4096);
  const auto answer = [](size_t num_bytes) {
    Response response = Answer("x");
    response.parameters["receipt"] = std::string(num_bytes, 'r');
    return response;
  };
  cache.Insert(kOne, "large", answer(8192));
  EXPECT_EQ(cache.Find("large"), nullptr);
  cache.Insert(kOne, "a", answer(2048));
  EXPECT_GE(cache.used_bytes(), 2048U);
  cache.Insert(kOne, "b", answer(2048));
  EXPECT_EQ(cache.Find("a"), nullptr);
  EXPECT_NE(cache.Find("b"), nullptr);
}

Request Asking(std::vector<Tensor> inputs) {
  Request request;
  request.inputs = std::move(inputs);
  return request;
}

std::string KeyOf(const Request& request) { return ResponseCache::KeyOf("p", request); }

TEST(ResponseCacheTest, KeysFollowInputsAndWhoeverAsks) {
  const Request request = Asking({Texts("A", {"x"}), Texts("B", {"y"})});
  Request same = Asking({Texts("B", {"y"}), Texts("A", {"x"})});
  same.id = "other";
  same.priority = 1;
  same.timeout_us = 5;
  EXPECT_EQ(KeyOf(same), KeyOf(request));
  EXPECT_NE(KeyOf(Asking({Texts("A", {"x"})})), KeyOf(request));
  EXPECT_NE(KeyOf(Asking({Texts("A", {"y"}), Texts("B", {"x"})})), KeyOf(request));
  Request salted = request;
  salted.parameters["cache_salt"] = std::string("s");
  EXPECT_NE(KeyOf(salted), KeyOf(request));
  Request of_another = request;
  of_another.client = std::make_shared<Client>(Client{.identity = {1}, .name = "a"});
  EXPECT_NE(KeyOf(of_another), KeyOf(request));
  Request fewer = request;
  fewer.requested_outputs = {"OUT"};
  EXPECT_NE(KeyOf(fewer), KeyOf(request));
  Request reshaped = request;
  reshaped.inputs[0].shape = {1, 1};
  EXPECT_NE(KeyOf(reshaped), KeyOf(request));
}

// A model may do another thing for any of them, and for another type of the same digits.
TEST(ResponseCacheTest, KeysFollowParameters) {
  const auto key = [](const Parameters& parameters) {
    Request request = Asking({Texts("A", {"x"})});
    request.parameters = parameters;
    return KeyOf(request);
  };
  const std::vector<Parameters> all = {{},
                                       {{"a", true}},
                                       {{"a", false}},
                                       {{"b", true}},
                                       {{"a", int64_t{1}}},
                                       {{"a", uint64_t{1}}},
                                       {{"a", 1.0}},
                                       {{"a", std::nextafter(1.0, 2.0)}},
                                       {{"a", std::string("1")}},
                                       {{"a", std::string("true")}},
                                       {{"a", true}, {"b", true}}};
  std::set<std::string> keys;
  for (const Parameters& parameters : all) {
    EXPECT_EQ(key(parameters), key(parameters));
    keys.insert(key(parameters));
  }
  EXPECT_EQ(keys.size(), all.size());
}

// An ensemble tells the sequence in its answers, also where none of its steps has sequences.
TEST(ResponseCacheTest, KeysFollowTheSequence) {
  std::vector<Request> all(5, Asking({Texts("A", {"x"})}));
  all[1].sequence_id = 7;
  all[2].sequence_name = "7";
  all[3].sequence_start = true;
  all[4].sequence_end = true;
  std::set<std::string> keys;
  for (const Request& request : all) keys.insert(KeyOf(request));
  EXPECT_EQ(keys.size(), all.size());
}

TEST(ResponseCacheTest, NeighbouringBytesAreNotMistakenForEachOther) {
  const auto key = [](const char* a, const char* b) {
    return ResponseCache::KeyOf("p", Asking({Texts(a, {}), Texts(b, {})}));
  };
  EXPECT_NE(key("AB", "C"), key("A", "BC"));
}

TEST(ResponseCacheTest, EachLoadOfAModelHasKeysOfItsOwn) {
  ResponseCache cache(1024);
  EXPECT_NE(cache.NewPrefix(), cache.NewPrefix());
}

TEST(ResponseCacheConfigTest, WordsOfTheCommandLine) {
  const auto none = MakeResponseCache({}, 0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  for (const auto& cache :
       {MakeResponseCache({"local,size=1024"}, 0), MakeResponseCache({}, 1024)}) {
    ASSERT_TRUE(cache.ok());
    EXPECT_NE(*cache, nullptr);
  }
  EXPECT_THAT(MakeResponseCache({"local,size=1"}, 1).status().message(),
              HasSubstr("give one of them"));
  for (const char* word :
       {"redis,host=x", "local", "local,size=", "local,size=0", "local,size=1k"}) {
    EXPECT_THAT(MakeResponseCache({word}, 0).status().message(), HasSubstr(word));
  }
}

}  // namespace
}  // namespace inflight::serving
