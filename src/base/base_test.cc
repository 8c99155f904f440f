// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/file.h"
#include "base/idle_memory.h"
#include "base/log.h"
#include "base/log_settings.h"
#include "base/log_table.h"
#include "base/no_memory_left.h"
#include "base/status_macros.h"
#include "base/text_table.h"
#include "base/thread_boundary.h"
#include "base/worker_pool.h"
#include "inflight/status.h"

std::atomic<int> num_returns{0};

// In place of the allocator's.
extern "C" void mi_collect(bool) { ++num_returns; }

namespace inflight {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0)
    return InvalidArgument("x: got " + std::to_string(x) + ", an even number is needed");
  return x / 2;
}

Result<int> Quarter(int x) {
  ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(StatusTest, AssignOrReturnPassesTheFirstErrorUp) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(6).status().message(), "x: got 3, an even number is needed");
  EXPECT_EQ(Quarter(6).status().WithPrefix("f").ToString(),
            "INVALID_ARGUMENT: f: x: got 3, an even number is needed");
}

TEST(StatusTest, ReasonAndFieldSurviveWhatIsSaidAroundThem) {
  const Status status = InvalidArgument("top_k", "got -1, must be at least 0");
  EXPECT_EQ(status.message(), "top_k: got -1, must be at least 0");
  EXPECT_EQ(status.field(), "top_k");
  EXPECT_EQ(status.WithPrefix("m").message(), "m: top_k: got -1, must be at least 0");
  EXPECT_EQ(status.WithPrefix("m").field(), "top_k");
  const Status full = OutOfMemory("no room").WithMessage("load failed: no room");
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(full.reason(), Reason::kOutOfMemory);
  EXPECT_EQ(full.ToString(), "RESOURCE_EXHAUSTED: load failed: no room");
  EXPECT_NE(full, ResourceExhausted("load failed: no room"));
  EXPECT_EQ(full, Status(full));
  EXPECT_EQ(Status::Ok().WithField("f").WithReason(Reason::kQueueFull).WithMessage("m"), Status());
  EXPECT_EQ(full.retry_after_s(), 0);
  EXPECT_EQ(full.WithRetryAfter(5).WithPrefix("m").WithReason(Reason::kNone).retry_after_s(), 5);
  EXPECT_EQ(Status::Ok().WithRetryAfter(5).retry_after_s(), 0);
}

TEST(StatusTest, CopiesAreTheirOwnAndTheCodeOfAMovedFromErrorStays) {
  Status first = NotFound("a");
  Status second = first;
  first = InvalidArgument("f", "b");
  EXPECT_EQ(second.message(), "a");
  EXPECT_EQ(second.field(), "");
  second = std::move(first);
  EXPECT_EQ(second.field(), "f");
  // NOLINTNEXTLINE(bugprone-use-after-move)
  EXPECT_FALSE(first.ok()) << "an error does not become OK unseen";
  EXPECT_EQ(first.message(), "");
}

TEST(StatusTest, AnExceptionForWantOfMemoryIsKnownByItsReason) {
  EXPECT_EQ(Caught("request failed", std::bad_alloc()),
            OutOfMemory("request failed: the server has no memory left for it; try again later"));
  const Status other = Caught("request failed", std::runtime_error("out of memory"));
  EXPECT_EQ(other.reason(), Reason::kNone);
  EXPECT_EQ(other.ToString(), "INTERNAL: request failed: out of memory");
}

TEST(ThreadBoundaryTest, ATurnThatThrowsIsDroppedAndWorkThatThrowsIsAStatus) {
  bool is_done = false;
  EXPECT_TRUE(RunTurn("test", [&] { is_done = true; }));
  EXPECT_TRUE(is_done);
  EXPECT_FALSE(RunTurn("test", [] { throw std::bad_alloc(); }));
  EXPECT_FALSE(RunTurn("test", [] { throw 7; }));
  EXPECT_EQ(StatusOf([] { return Status::Ok(); }), Status::Ok());
  EXPECT_EQ(StatusOf([] { return NotFound("it"); }), NotFound("it"));
  EXPECT_EQ(StatusOf([]() -> Status { throw std::bad_alloc(); }), NoMemoryLeft());
  EXPECT_EQ(StatusOf([]() -> Status { throw std::runtime_error("why"); }),
            Internal("an exception: why"));
}

TEST(LogTest, FieldsWithBlanksAreQuotedAndCannotForgeALine) {
  EXPECT_EQ(logging::FormatFields(
                {{"a", 1}, {"b", "x y"}, {"c", "p\nI1121 forged"}, {"d", true}, {"e", 0.5}}),
            R"(a=1 b="x y" c="p\nI1121 forged" d=true e=0.5)");
  EXPECT_EQ(logging::FormatFields({{"q", "say \"hi\"\\"}}), R"(q="say \"hi\"\\")");
  // What UTF-8 writes in two bytes: the terminal's "begin a command" and "next line", and an
  // umlaut.
  EXPECT_EQ(logging::FormatFields({{"c", "a\u009b2J\u0085b\u00fc"}}), "c=\"a\\x9b2J\\x85b\u00fc\"");
  EXPECT_EQ(logging::FormatFields({{"l", std::string(5000, 'x')}}),
            "l=\"" + std::string(4096, 'x') + "... 904 more bytes\"");
}

TEST(LogTest, LevelsAreSwitchedOneByOne) {
  using logging::Level;
  logging::SetLevel(Level::kWarning);
  EXPECT_FALSE(logging::Enabled(Level::kInfo));
  EXPECT_TRUE(logging::Enabled(Level::kWarning));
  logging::SetVerboseLevel(3);
  logging::SetEnabled(Level::kError, false);
  EXPECT_TRUE(logging::Enabled(Level::kVerbose));
  const logging::Settings settings = logging::CurrentSettings();
  EXPECT_FALSE(settings.info);
  EXPECT_TRUE(settings.warning);
  EXPECT_FALSE(settings.error);
  EXPECT_EQ(settings.verbose_level, 3U);
  logging::SetLevel(Level::kInfo);
  EXPECT_EQ(logging::CurrentSettings().verbose_level, 0U);
  EXPECT_TRUE(logging::Enabled(Level::kError));
}

// What is logged goes to a file while it lives, else where it went before.
class LogFileTest : public testing::Test {
 protected:
  LogFileTest()
      : path_(std::filesystem::temp_directory_path() /
              ("inflight_log_test_" + std::to_string(getpid()))) {
    EXPECT_TRUE(WriteFile(path_, "before\n").ok());
    EXPECT_TRUE(logging::SetFile(path_).ok());
  }
  ~LogFileTest() override {
    logging::SetConsole(logging::Console::kStandardError);
    logging::SetFormat(logging::Format::kDefault);
    logging::SetEscaping(true);
    std::filesystem::remove(path_);
  }
  std::string Logged() const { return *ReadFile(path_); }

  const std::string path_;
};

TEST_F(LogFileTest, LinesAreAppendedInTritonsFormats) {
  EXPECT_EQ(logging::CurrentSettings().file, path_);
  logging::Info("a \"b\"\n\x01", {{"c", "d e"}});
  logging::SetVerboseLevel(1);
  logging::Verbose("v");
  logging::SetVerboseLevel(0);
  logging::SetFormat(logging::Format::kIso8601);
  logging::Warning("w");
  const std::string glog = "[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6} ";
  const std::string iso = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z ";
  const std::string place = std::to_string(getpid()) + R"( base_test\.cc:[0-9]+\] )";
  EXPECT_THAT(Logged(),
              testing::MatchesRegex("before\n"
                                    "I" +
                                    glog + place +
                                    R"("a \\"b\\"\\n\\u0001 c=\\"d e\\"")"
                                    "\nI" +
                                    glog + place + "\"v\"\n" + iso + "W " + place + "\"w\"\n"));
}

TEST_F(LogFileTest, WithoutEscapingMessagesStandAsTheyAre) {
  EXPECT_TRUE(logging::EscapingOf(nullptr));
  EXPECT_TRUE(logging::EscapingOf("1"));
  EXPECT_FALSE(logging::EscapingOf("0"));
  logging::SetEscaping(false);
  logging::Error("say \"no\"");
  EXPECT_TRUE(Logged().ends_with("] say \"no\"\n")) << Logged();
}

TEST_F(LogFileTest, TablesFollowTheirHeadingAsTheyAre) {
  logging::Table("models", TextTable({{"Model", "Status"}, {"m", "READY"}, {"longer", "a\rb"}}));
  const std::string logged = Logged();
  EXPECT_TRUE(
      logged.ends_with("] \"models\"\n"
                       "+--------+--------+\n"
                       "| Model  | Status |\n"
                       "+--------+--------+\n"
                       "| m      | READY  |\n"
                       "| longer | a\\x0db    |\n"
                       "+--------+--------+\n"))
      << logged;
}

TEST(LogTest, AFileThatCannotBeOpenedIsNamed) {
  const std::string directory = std::filesystem::temp_directory_path();
  const Status status = logging::SetFile(directory);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find(directory), std::string::npos);
  EXPECT_EQ(logging::CurrentSettings().file, "");
}

TEST(FileTest, WrittenContentIsReadAndMappedBack) {
  const auto path =
      std::filesystem::temp_directory_path() / ("inflight_file_test_" + std::to_string(getpid()));
  const std::string content("a\0b", 3);
  ASSERT_TRUE(WriteFile(path, content).ok());
  EXPECT_EQ(*ReadFile(path), content);
  auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(mapped->bytes().size(), 3U);
  EXPECT_EQ(ReadFile(path, 2).status().code(), StatusCode::kInvalidArgument);
  std::filesystem::resize_file(path, uint64_t{1} << 42);  // of holes
  EXPECT_EQ(ReadFile(path, 100).status(),
            InvalidArgument(path.string() + ": larger than 100 bytes"));
  std::filesystem::remove(path);
  EXPECT_EQ(ReadFile(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadFile("/").status().code(), StatusCode::kInvalidArgument);
}

TEST(WorkerPoolTest, ATaskMayLetGoOfTheLastReference) {
  std::promise<void> may_end;
  std::promise<void> has_ended;
  auto pool = WorkerPool::MakeShared(1, "pool");
  pool->Post([pool, end = may_end.get_future().share()] { end.wait(); });
  pool->Post([&has_ended] { has_ended.set_value(); });
  pool.reset();
  may_end.set_value();
  EXPECT_EQ(has_ended.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST(WorkerPoolTest, ShortTasksDoNotWaitForLongOnes) {
  std::promise<void> opened;
  const std::shared_future<void> gate(opened.get_future());
  std::atomic<int> num_long = 0;
  WorkerPool pool(3, "test");  // ends first: its tasks use the above
  for (int i = 0; i < 5; ++i) {
    pool.Post(
        [&num_long, gate] {
          ++num_long;
          gate.wait();
        },
        WorkerPool::Length::kLong);
  }
  for (int i = 0; i < 100; ++i) {
    std::promise<void> ran;
    pool.Post([&ran] { ran.set_value(); });
    ran.get_future().wait();  // for ever, if it waited for those behind the gate
  }
  EXPECT_LE(num_long, 2);
  opened.set_value();
}

// Behind a gate, so that all are posted before the first is taken.
class OneWorker {
 public:
  OneWorker() {
    std::promise<void> begun;
    pool_.Post([&begun, gate = std::shared_future<void>(opened_.get_future())] {
      begun.set_value();
      gate.wait();
    });
    begun.get_future().wait();
  }
  void Post(const std::string& name, WorkerPool::Length length, const void* owner = nullptr) {
    pool_.Post([this, name] { order_.push_back(name); }, length, owner);
  }
  std::vector<std::string> Run() {
    opened_.set_value();
    while (true) {  // until one finds nothing before it
      std::promise<size_t> ran;
      pool_.Post([&] { ran.set_value(order_.size()); }, WorkerPool::Length::kLong, this);
      if (ran.get_future().get() == num_expected_) return order_;
    }
  }
  void Expect(size_t num) { num_expected_ = num; }

 private:
  std::promise<void> opened_;
  std::vector<std::string> order_;
  size_t num_expected_ = 0;
  WorkerPool pool_{1, "test"};
};

TEST(WorkerPoolTest, ShortTasksDoNotKeepLongOnesWaitingForEver) {
  OneWorker worker;
  worker.Expect(101);
  worker.Post("long", WorkerPool::Length::kLong);
  for (int i = 0; i < 100; ++i) worker.Post("short", WorkerPool::Length::kShort);
  const std::vector<std::string> order = worker.Run();
  EXPECT_EQ(std::ranges::find(order, "long") - order.begin(), WorkerPool::kShortInARow);
}

TEST(WorkerPoolTest, LongTasksOfSeveralOwnersGoInTurns) {
  OneWorker worker;
  worker.Expect(5);
  const int a = 0;
  const int b = 0;
  for (const char* name : {"a1", "a2", "a3"}) worker.Post(name, WorkerPool::Length::kLong, &a);
  for (const char* name : {"b1", "b2"}) worker.Post(name, WorkerPool::Length::kLong, &b);
  EXPECT_EQ(worker.Run(), (std::vector<std::string>{"a1", "b1", "a2", "b2", "a3"}));
}

TEST(WorkerPoolTest, EveryLongTaskRunsBeforeItEnds) {
  for (const int num_threads : {1, 2, 4}) {
    std::atomic<int> num_ran = 0;
    {
      WorkerPool pool(num_threads, "test");
      for (int i = 0; i < 50; ++i) pool.Post([&] { ++num_ran; }, WorkerPool::Length::kLong);
    }
    EXPECT_EQ(num_ran, 50) << num_threads;
  }
}

TEST(WorkerPoolTest, ATaskThatThrowsEndsNothingElse) {
  std::atomic<bool> ran = false;
  {
    WorkerPool pool(1, "test");
    pool.Post([] { throw std::bad_alloc(); });
    pool.Post([&ran] { ran = true; });
  }
  EXPECT_TRUE(ran);
}

TEST(WorkerPoolTest, RunsEveryPostedTaskBeforeItEnds) {
  std::atomic<int> count{0};
  {
    WorkerPool pool(3, "test");
    for (int i = 0; i < 1000; ++i) pool.Post([&] { ++count; });
  }
  EXPECT_EQ(count, 1000);
}

// At once, a second later, and again what others have freed of it since.
TEST(IdleMemoryTest, ThreadThatWaitsForATaskReturnsItsMemory) {
  num_returns = 0;
  const WorkerPool pool(1, "test");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (num_returns < 3 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kMemoryInterval / 10);
  }
  EXPECT_GE(num_returns, 3);
}

TEST(IdleMemoryTest, ThreadThatLooksReturnsWhatItsWorkLeftAtMostOnceAnInterval) {
  std::thread([] {  // whose last return is long ago
    num_returns = 0;
    MemoryLook look;
    look.Look(0);
    EXPECT_EQ(num_returns, 0);
    look.Look(1);
    look.Look(2);
    EXPECT_EQ(num_returns, 1);
  })
      .join();
}

}  // namespace
}  // namespace inflight
