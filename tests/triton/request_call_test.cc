// SPDX-License-Identifier: Apache-2.0
// What a response carries besides its outputs, on its way into the server.
#include "protocol/triton_backend/request_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "fake_server.h"

namespace fake_triton {
namespace {

using inflight::serving::CancelToken;
using inflight::serving::Response;
using inflight::triton_backend::CancelWatch;
using inflight::triton_backend::RequestCall;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::VariantWith;

class RequestCallTest : public testing::Test {
 protected:
  void Send(Response response) {
    RequestCall call(&instance_, &request_, watch_);
    const auto opened = call.Open(std::make_shared<CancelToken>());
    ASSERT_TRUE(opened.ok()) << opened.ToString();
    call.NoteStart();
    response.is_final = true;
    call.OnResponse(response);
  }

  TRITONBACKEND_ModelInstance instance_;
  TRITONBACKEND_Request request_;
  CancelWatch watch_{/*period_ms=*/10};
};

TEST_F(RequestCallTest, ParametersKeepTheirTypes) {
  Response response;
  response.parameters["receipt"] = std::string("{}");
  response.parameters["random_seed"] = int64_t{-3};
  response.parameters["sequence_id"] = uint64_t{7};
  response.parameters["sequence_start"] = true;
  response.parameters["share"] = 0.25;
  Send(std::move(response));
  const auto sent = request_.WaitUntilReleased();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].is_final);
  EXPECT_FALSE(sent[0].error);
  EXPECT_THAT(sent[0].parameters, ElementsAre(Pair("random_seed", VariantWith<int64_t>(-3)),
                                              Pair("receipt", VariantWith<std::string>("{}")),
                                              Pair("sequence_id", VariantWith<int64_t>(7)),
                                              Pair("sequence_start", VariantWith<bool>(true)),
                                              Pair("share", VariantWith<double>(0.25))));
  EXPECT_EQ(instance_.num_successes, 1);
}

TEST_F(RequestCallTest, AnEndWithoutAnythingIsNoResponse) {
  Send({});
  const auto sent = request_.WaitUntilReleased();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_TRUE(sent[0].is_final);
  EXPECT_THAT(sent[0].parameters, IsEmpty());
  EXPECT_EQ(instance_.num_responses, 0);
}

TEST_F(RequestCallTest, AnErrorHasNoParameters) {
  Response response{.status = inflight::InvalidArgument("no")};
  response.parameters["random_seed"] = int64_t{5};
  Send(std::move(response));
  const auto sent = request_.WaitUntilReleased();
  ASSERT_TRUE(sent.at(0).error);
  EXPECT_EQ(sent[0].error->message, "no");
  EXPECT_THAT(sent[0].parameters, IsEmpty());
  EXPECT_EQ(instance_.num_failures, 1);
}

}  // namespace
}  // namespace fake_triton
