// SPDX-License-Identifier: Apache-2.0
// Pickles written by hand, opcode by opcode; Python's own are in tests/tools/test_torch_files.py.
#include "artifact/pickle.h"

#include <gmock/gmock.h>

#include "artifact/test_files.h"

namespace inflight::artifact {
namespace {

using testing::HasSubstr;
using Kind = PickleValue::Kind;
using namespace std::string_literals;

Status ErrorOf(const std::string& text) {
  const auto pickle = ReadPickle(BytesOf(text));
  EXPECT_FALSE(pickle.ok());
  return pickle.status();
}

TEST(PickleTest, ReadsNumbersTextsAndContainers) {
  // {'a': (True, -2, 300), 'b': [7]} of protocol 2, then bytes that belong to something else.
  const std::string text =
      "\x80\x02}(X\x01\x00\x00\x00"
      "a\x88J\xfe\xff\xff\xffM\x2c\x01\x87"
      "X\x01\x00\x00\x00"
      "b]K\x07"
      "au.rest"s;
  const auto pickle = ReadPickle(BytesOf(text));
  ASSERT_TRUE(pickle.ok()) << pickle.status().ToString();
  EXPECT_EQ(pickle->num_bytes, text.size() - 4);
  const PickleValue& root = (*pickle)[pickle->root];
  ASSERT_EQ(root.kind, Kind::kDict);
  ASSERT_EQ(root.items.size(), 4U);
  EXPECT_EQ((*pickle)[root.items[0]].text, "a");
  const PickleValue& tuple = (*pickle)[root.items[1]];
  ASSERT_EQ(tuple.kind, Kind::kTuple);
  ASSERT_EQ(tuple.items.size(), 3U);
  EXPECT_EQ((*pickle)[tuple.items[0]].kind, Kind::kBool);
  EXPECT_EQ((*pickle)[tuple.items[1]].number, -2);
  EXPECT_EQ((*pickle)[tuple.items[2]].number, 300);
  const PickleValue& list = (*pickle)[root.items[3]];
  ASSERT_EQ(list.kind, Kind::kList);
  EXPECT_EQ((*pickle)[list.items[0]].number, 7);
}

TEST(PickleTest, LongsAreTwosComplementOfAnyLength) {
  struct Case {
    std::string bytes;
    int64_t value;
  };
  const Case cases[] = {{"", 0},
                        {"\xff"s, -1},
                        {"\xff\x00"s, 255},
                        {"\x00\x80"s, -32768},
                        {"\xff\xff\xff\xff\xff\xff\xff\x7f"s, INT64_MAX},
                        {"\x00\x00\x00\x00\x00\x00\x00\x80"s, INT64_MIN}};
  for (const Case& c : cases) {
    const std::string text = "\x8a"s + static_cast<char>(c.bytes.size()) + c.bytes + ".";
    const auto pickle = ReadPickle(BytesOf(text));
    ASSERT_TRUE(pickle.ok()) << pickle.status().ToString();
    EXPECT_EQ((*pickle)[pickle->root].kind, Kind::kInt);
    EXPECT_EQ((*pickle)[pickle->root].number, c.value);
  }
  const std::string huge = "\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09."s;
  const auto pickle = ReadPickle(BytesOf(huge));
  ASSERT_TRUE(pickle.ok());
  EXPECT_EQ((*pickle)[pickle->root].kind, Kind::kHugeInt);
  EXPECT_EQ((*pickle)[pickle->root].text.size(), 9U);
}

TEST(PickleTest, EveryTruncationIsDataLoss) {
  const std::string text =
      "\x80\x02}(X\x01\x00\x00\x00"
      "actorch\nFloatStorage\nG\x00\x00\x00\x00\x00\x00\x00\x00u."s;
  // One value too many for SETITEMS: whole, it is refused for another reason.
  EXPECT_EQ(ErrorOf(text).code(), StatusCode::kInvalidArgument);
  for (size_t n = 0; n + 2 < text.size(); ++n) {
    const Status status = ErrorOf(text.substr(0, n));
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << n << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("truncated"));
  }
}

TEST(PickleTest, NamesTheByteAndTheOpcode) {
  EXPECT_THAT(ErrorOf("\x80\x02P1\n."s).message(),
              HasSubstr("byte 2: PERSID: this opcode is refused"));
  EXPECT_THAT(ErrorOf("\x80\x09."s).message(), HasSubstr("PROTO: got 9, at most 5 is read"));
  EXPECT_THAT(ErrorOf("\x80\x02\xff").message(), HasSubstr("byte 2: 0xff is no opcode"));
  EXPECT_THAT(ErrorOf("cos\nsystem\n.").message(),
              HasSubstr("GLOBAL: global 'os.system' is refused"));
  EXPECT_THAT(ErrorOf("c\x1b[2J\nx\n."s).message(), HasSubstr("'\\x1b[2J.x'"));
}

TEST(PickleTest, TheStackIsGuarded) {
  EXPECT_THAT(ErrorOf(".").message(), HasSubstr("STOP: 0 values"));
  EXPECT_THAT(ErrorOf("NN.").message(), HasSubstr("STOP: 2 values"));
  EXPECT_THAT(ErrorOf("(N.").message(), HasSubstr("STOP"));
  for (const char* text : {"R.", "NR.",   "b.",     "a.",  "Na.",   "s.",     "NNs.",
                           "u.", "Nu.",   "e.",     "t.",  "\x85.", "N\x86.", "NN\x87.",
                           "Q.", "\x93.", "N\x93.", "q1.", "\x94.", "N(R.",   "NN(\x86."})
    EXPECT_THAT(ErrorOf(text).message(),
                testing::AnyOf(HasSubstr("stack is empty"), HasSubstr("no mark")))
        << text;
  EXPECT_THAT(ErrorOf("}(Nu.").message(), HasSubstr("a key without a value"));
  EXPECT_THAT(ErrorOf("h\x07."s).message(), HasSubstr("nothing is kept as 7"));
  EXPECT_THAT(ErrorOf(std::string(2000, '(')).message(), HasSubstr("more than 1000 marks"));
}

TEST(PickleTest, ContainersThatHoldThemselvesAreRead) {
  const std::string text = "]q\x01h\x01"s + "a."s;  // l = []; l.append(l)
  const auto pickle = ReadPickle(BytesOf(text));
  ASSERT_TRUE(pickle.ok()) << pickle.status().ToString();
  EXPECT_EQ((*pickle)[pickle->root].items, std::vector<PickleIdx>{pickle->root});
}

TEST(PickleTest, ValuesAreBounded) {
  std::string text;
  for (int i = 0; i < (1 << 22) + 1; ++i) text += 'N';
  EXPECT_THAT(ErrorOf(text).message(), HasSubstr("more than 4194304 values"));
}

}  // namespace
}  // namespace inflight::artifact
