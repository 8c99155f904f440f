// SPDX-License-Identifier: Apache-2.0
#include "serving/server/local_paths.h"

#include <gtest/gtest.h>

namespace inflight::serving {
namespace {

TEST(WithoutFolders, PathsKeepTheirLastPart) {
  EXPECT_EQ(WithoutFolders("/srv/models/m/1/config.json: cannot open: No such file or directory"),
            "config.json: cannot open: No such file or directory");
  EXPECT_EQ(WithoutFolders("tokenizer_dir '/srv/my files/llama/': /srv/tokenizer.json: not JSON"),
            "tokenizer_dir 'llama': tokenizer.json: not JSON");
  EXPECT_EQ(WithoutFolders("files (/a/b, /c/d) of dir=/e/f"), "files (b, d) of dir=f");
}

TEST(WithoutFolders, WhatIsNoPathStays) {
  for (const char* message : {"", "/", "got '/'", "https://host/a/b", "read/write, 1/2 of org/name",
                              "12 / 4 tokens", "'unclosed"}) {
    EXPECT_EQ(WithoutFolders(message), message);
  }
}

}  // namespace
}  // namespace inflight::serving
