// SPDX-License-Identifier: Apache-2.0
// What requests unpack and parse to is charged to their connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <string>

#include "protocol/kserve/http/compression.h"
#include "protocol/kserve/http/http_server_fixture.h"

namespace inflight::kserve_http {
namespace {

using testing::HasSubstr;

constexpr size_t kMib = size_t{1} << 20;

class HttpMemoryTest : public HttpServerTest {
 protected:
  void StartWith(size_t bytes) {
    memory_ = MemoryAccount::Make(MemoryLimits::Of(bytes));
    HttpOptions options;
    options.listener.memory = memory_;
    Start(options);
  }
  void ExpectAllReturned() {
    for (int i = 0; i < 10'000 && memory_->used_bytes() > 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(memory_->used_bytes(), 0U);
  }

  std::shared_ptr<MemoryAccount> memory_;
};

std::string Gzip(std::string text) {
  http_listener::HttpResponse packed{.body = std::move(text)};
  EXPECT_TRUE(Compress(Coding::kGzip, packed).ok());
  return packed.body;
}

std::string Ids(size_t count) {
  std::string data = R"({"inputs":[{"name":"INPUT0","datatype":"FP64","shape":[1,)" +
                     std::to_string(count) + R"(],"data":[0)";
  for (size_t i = 1; i < count; ++i) data += ",0";
  return data + "]}]}";
}

TEST_F(HttpMemoryTest, WhatABodyUnpacksToIsChargedAsItComes) {
  StartWith(16 * kMib);
  const std::string bomb = Gzip(std::string(60 * kMib, ' '));
  const TestResponse response =
      Request(Post("/v2/models/simple/infer", bomb, "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("limit of 8388608 bytes"));
  ExpectAllReturned();
}

TEST_F(HttpMemoryTest, WhatJsonIsParsedToIsChargedBefore) {
  StartWith(16 * kMib);
  EXPECT_EQ(Request(Post("/v2/models/id_fp64/infer", Ids(100'000))).status, 200);
  const TestResponse response = Request(Post("/v2/models/id_fp64/infer", Ids(1'200'000)));
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("limit of 8388608 bytes"));
  ExpectAllReturned();
}

// 8 MiB that a connection may hold take the tensor of 200,000 numbers, of which each may have 25
// bytes as JSON, and not that of 400,000.
TEST_F(HttpMemoryTest, WhatIsWrittenAsJsonIsChargedBefore) {
  StartWith(16 * kMib);
  fake_.Add(R"(name: "many" input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 }
               output { name: "OUTPUT0" data_type: TYPE_FP64 dims: -1 })",
            [](const serving::Request& request, const serving::ResponseHandler& handler) {
              const auto count = ValueOr<int32_t>(request, "INPUT0", 0);
              serving::Response response = Begin(request);
              const std::vector<double> values(static_cast<size_t>(count));
              response.outputs.push_back(serving::Tensor::FromValues<double>(
                  "OUTPUT0", serving::DataType::kFp64, {count}, std::span(values)));
              handler(std::move(response));
            });
  const auto infer = [this](int count) {
    return Request(Post("/v2/models/many/infer",
                        R"({"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[)" +
                            std::to_string(count) + "]}]}"));
  };
  EXPECT_EQ(infer(200'000).status, 200);
  EXPECT_EQ(infer(400'000).status, 503);
  const auto generate = [this](int count) {
    return Request(Post("/v2/models/many/generate", R"({"INPUT0":)" + std::to_string(count) + "}"));
  };
  EXPECT_EQ(generate(200'000).status, 200);
  const TestResponse refused = generate(400'000);
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("limit of 8388608 bytes"));
  ExpectAllReturned();
}

// By what it may unpack to: a few hundred bytes are enough.
TEST_F(HttpMemoryTest, WhatMayBeLargeIsUnpackedOffTheIoThreads) {
  std::string thread;
  fake_.Add(R"(name: "where" input { name: "INPUT0" data_type: TYPE_STRING dims: 1 })",
            [&thread](const serving::Request&, const serving::ResponseHandler& handler) {
              std::array<char, 16> name{};
              pthread_getname_np(pthread_self(), name.data(), name.size());
              thread = name.data();
              handler({.status = InvalidArgument("enough"), .is_final = true});
            });
  const auto body = [](const std::string& text) {
    return R"({"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":[")" + text +
           R"("]}]})";
  };
  std::string various;
  for (int i = 0; i < 400; ++i) various += std::to_string(i * 7919);
  EXPECT_EQ(Request(Post("/v2/models/where/infer", body(various))).status, 400);
  EXPECT_EQ(thread, "HTTP I/O");
  const std::string packed = Gzip(body(various));
  ASSERT_LT(packed.size(), 4096U);
  EXPECT_EQ(Request(Post("/v2/models/where/infer", packed, "Content-Encoding: gzip\r\n")).status,
            400);
  EXPECT_EQ(thread, "http-body");
  thread.clear();
  EXPECT_EQ(Request(Post("/v2/models/where/infer", body(std::string(kMib, 'x')))).status, 400);
  EXPECT_EQ(thread, "http-body");
}

// The body that they came in is gone as soon as the I/O thread has left the handler.
TEST_F(HttpMemoryTest, ARunningRequestHoldsItsTensors) {
  StartWith(16 * kMib);
  TestClient client(server_->port());
  client.Send(Post("/v2/models/held/infer",
                   R"({"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":[")" +
                       std::string(kMib, 'x') + R"("]}]})"));
  {
    const Held held = TakeHeld();
    for (int i = 0; i < 10'000 && memory_->used_bytes() > kMib + 1024; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(memory_->used_bytes(), kMib);
    EXPECT_LE(memory_->used_bytes(), kMib + 1024);
    serving::Response response;
    response.is_final = true;
    response.status = InvalidArgument("enough");
    held.handler(std::move(response));
  }
  EXPECT_EQ(client.Receive().status, 400);
  ExpectAllReturned();
}

TEST_F(HttpMemoryTest, ARunningRequestHoldsItsParametersToo) {
  StartWith(64 * kMib);
  TestClient client(server_->port());
  client.Send(Post(
      "/v2/models/held/infer",
      R"({"id":")" + std::string(kMib, 'i') + R"(","parameters":{"x":")" + std::string(kMib, 'x') +
          R"("},"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[1],"data":[""]}]})"));
  {
    const Held held = TakeHeld();
    for (int i = 0; i < 10'000 && memory_->used_bytes() > 2 * kMib + 1024; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(memory_->used_bytes(), 2 * kMib);
    EXPECT_LE(memory_->used_bytes(), 2 * kMib + 1024);
    serving::Response response;
    response.is_final = true;
    response.status = InvalidArgument("enough");
    held.handler(std::move(response));
  }
  EXPECT_EQ(client.Receive().status, 400);
  ExpectAllReturned();
}

}  // namespace
}  // namespace inflight::kserve_http
