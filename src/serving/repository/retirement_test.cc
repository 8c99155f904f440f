// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/retirement.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>
#include <utility>

namespace inflight::serving {
namespace {

// Tells which thread ended it.
class EndingModel final : public Model {
 public:
  explicit EndingModel(std::promise<std::thread::id>* ended) : Model({}, "1"), ended_(ended) {}
  ~EndingModel() override { ended_->set_value(std::this_thread::get_id()); }
  void Infer(Request, ResponseHandler) override {}

 private:
  std::promise<std::thread::id>* const ended_;
};

// As a request that was answered is: its call ends on a thread of the model, behind the answer.
TEST(RetirementTest, WhoLetsGoWhileItClosesDoesNotEndTheModel) {
  const auto retirement = std::make_shared<Retirement>();
  std::promise<std::thread::id> ended;
  std::promise<void> is_closing;
  std::thread user([model = Retirement::Guard(retirement, std::make_shared<EndingModel>(&ended)),
                    closing = is_closing.get_future()]() mutable {
    closing.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    model = nullptr;
  });
  const std::thread::id users = user.get_id();
  is_closing.set_value();
  retirement->Close();
  const std::thread::id by = ended.get_future().get();
  EXPECT_NE(by, users);
  EXPECT_NE(by, std::this_thread::get_id());
  user.join();
}

TEST(RetirementTest, AModelThatIsKeptEndsLaterWithItsKeeper) {
  const auto retirement = std::make_shared<Retirement>(std::chrono::milliseconds(10));
  std::promise<std::thread::id> ended;
  auto model = Retirement::Guard(retirement, std::make_shared<EndingModel>(&ended));
  retirement->Close();
  model = nullptr;
  EXPECT_EQ(ended.get_future().get(), std::this_thread::get_id());
}

}  // namespace
}  // namespace inflight::serving
