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

TEST(WithoutFolders, NoFolderIsToldHoweverItIsNamed) {
  for (const char* message :
       {"filesystem error: cannot open: Not a directory [/srv/secret/m] [/secret/x]",
        "//srv/secret/m: cannot open", "file:///srv/secret/m", "<</srv/secret/m>>",
        "/srv/my secret files/and more/m: cannot open", "'/srv/it's/secret/m': not JSON",
        "/srv/a:b/secret/c,d/m: cannot open", "a|/srv/secret/m", "{/srv/secret/m}",
        "\t/srv/secret/m\n/srv/secret/n", "`/srv/secret/m`/srv/secret/n",
        "/srv/secret/m /srv/secret/n", "error:/srv/secret/m"}) {
    const std::string told = WithoutFolders(message);
    EXPECT_EQ(told.find("secret"), std::string::npos) << told;
    EXPECT_EQ(told.find("srv"), std::string::npos) << told;
  }
  EXPECT_EQ(WithoutFolders("filesystem error: cannot open [/srv/m] [/tmp/x]"),
            "filesystem error: cannot open [m] [x]");
  EXPECT_EQ(WithoutFolders("/srv/my files/m/config.json: cannot open"), "config.json: cannot open");
  EXPECT_EQ(WithoutFolders("/srv/models is no folder; use org/name"),
            "models is no folder; use org/name");
}

TEST(WithoutFolders, WhatIsNoPathStays) {
  for (const char* message : {"", "/", "got '/'", "https://host/a/b", "a_/b -/c",
                              "read/write, 1/2 of org/name", "12 / 4 tokens", "'unclosed"}) {
    EXPECT_EQ(WithoutFolders(message), message);
  }
}

}  // namespace
}  // namespace inflight::serving
