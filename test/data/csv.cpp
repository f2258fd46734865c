#include "reel/data/csv.h"
#include "reel/data/text.h"

#include <cmath>

#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Strings = std::vector<std::string>;

TEST_CASE("a table is read with quotes as RFC 4180 has them") {
  const Folder folder;
  const auto table = data::read_csv(
      write(folder / "x.csv",
            "name,age,\"the \"\"note\"\"\"\r\nada,36,\"one, two\"\r\n\r\n\"bob\",,\"line\nend \"\"\"\n,7,"));
  CHECK(table.names() == Strings{"name", "age", "the \"note\""});
  CHECK(table.num_rows() == 3);
  CHECK(table.strings("name") == Strings{"ada", "bob", ""});
  CHECK(table.strings("the \"note\"") == Strings{"one, two", "line\nend \"", ""});
  CHECK(table.at(0, 1) == "36");
  CHECK_THROWS_WITH(table.at(3, 0), Contains("field 3, 0 of a table of 3 rows and 3 columns"));
  CHECK_THROWS_WITH(table.index_of("size"), Contains("there is no column 'size', but 'name', 'age', 'the \"note\"'"));

  const auto bare =
      data::read_csv(write(folder / "y", "1;'a;b'\n2;c"), {.separator = ';', .quote = '\'', .header = false});
  CHECK(bare.names() == Strings{"0", "1"});
  CHECK(bare.strings("1") == Strings{"a;b", "c"});
  CHECK(data::read_csv(write_gzip(folder / "x.gz", "a\n1\n")).num_rows() == 1);
  CHECK(data::read_csv(write(folder / "e", "")).num_columns() == 0);
  CHECK(data::read_csv(write(folder / "e", "a,b\n")).num_rows() == 0);
  CHECK(data::read_csv(write(folder / "e", "a,b\n")).tensor().shape() == Shape{0, 2});
}

TEST_CASE("columns become tensors of the type asked for") {
  const Folder folder;
  const auto path = write(folder / "x.csv", "i,f,b,gap\n1, 1.5 ,true,\n-2,1e3,0,4\n");
  const auto table = data::read_csv(path);
  CHECK(table.column("f").to_vector<float>() == std::vector<float>{1.5, 1000});
  CHECK(table.column("i", {.dtype = kInt64}).to_vector<int64_t>() == std::vector<int64_t>{1, -2});
  CHECK(table.column("b", {.dtype = kBool}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(table.columns({"f", "i"}, {.dtype = kFloat64}).to_vector<double>() == std::vector<double>{1.5, 1, 1000, -2});
  CHECK(table.column("f", {.dtype = kBFloat16}).dtype() == kBFloat16);
  const Tensor gap = table.column("gap", {.missing = NAN});
  CHECK(std::isnan(gap[0].item<float>()));
  CHECK(gap[1].item<float>() == 4);
  CHECK(table.column("gap", {.dtype = kInt32, .missing = -1}).to_vector<int32_t>() == std::vector<int32_t>{-1, 4});

  const std::string name = path.string();
  CHECK_THROWS_WITH(table.column("gap"),
                    Equals(name + ":2: column 'gap': '' is missing, and ColumnOptions::missing is not given"));
  CHECK_THROWS_WITH(table.column("gap", {.missing = 0, .missing_text = {"NA"}}), Contains("'' is not a float32"));
  CHECK_THROWS_WITH(table.tensor(), Contains("'true' is not a float32"));
  CHECK_THROWS_WITH(table.column("f", {.dtype = kInt64}), Contains(name + ":2: column 'f': '1.5' is not a int64"));
  CHECK_THROWS_WITH(table.column("i", {.dtype = kUInt8}), Contains(name + ":3: column 'i': '-2' is not a uint8"));
  CHECK_THROWS_WITH(table.column("gap", {.dtype = kInt64, .missing = NAN}), Contains("a int64 tensor cannot hold nan"));
  CHECK_THROWS_WITH(table.column("gap", {.dtype = kUInt8, .missing = 256}), Contains("a uint8 tensor cannot hold 256"));
}

TEST_CASE("a number nearer to 0 than any double is read as 0") {
  const Folder folder;
  const std::string zeros(400, '0');
  const auto read = [&](const std::string& text) {
    return data::read_csv(write(folder / "x", "x\n" + text + "\n")).column("x", {.dtype = kFloat64}).item<double>();
  };
  for (const std::string& tiny : {"1e-400"s, "0."s + zeros + "1", "1E-99999999999999999999"s, "+.1e-400"s})
    CHECK(read(tiny) == 0);
  CHECK(std::signbit(read("-1e-400")));
  CHECK(read("1e-310") == 1e-310);
  CHECK(read("1" + zeros + "e-400") == 1);
  for (const std::string& huge :
       {"1e400"s, "-1e400"s, "1" + zeros, "1" + zeros + "e-5", "1e99999999999999999999"s, "1e9223372036854775807"s})
    CHECK_THROWS_WITH(read(huge), Contains("is not a float64"));
}

TEST_CASE("columns of one name are told apart by their places") {
  const Folder folder;
  const auto table = data::read_csv(write(folder / "x.csv", "a,b,a\n1,2,3\n"));
  CHECK(table.tensor().to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(table.index_of("b") == 1);
  CHECK(table.at(0, 2) == "3");
  const std::string message = (folder / "x.csv").string() + ": columns 0 and 2 are both named 'a'";
  CHECK_THROWS_WITH(table.index_of("a"), Equals(message));
  CHECK_THROWS_WITH(table.column("a"), Equals(message));
}

TEST_CASE("a table with CR line ends is refused instead of read as a header") {
  const Folder folder;
  for (const char* text : {"a,b\r1,2\r3,4\r", "a\n1\r2\n"})
    CHECK_THROWS_WITH(data::read_csv(write(folder / "x", text)), Contains("a CR without a LF; rows end with"));
  CHECK(data::read_csv(write(folder / "x", "a\r\n\"1\r2\"\r\n")).at(0, 0) == "1\r2");
}

TEST_CASE("text with bare quotes is read without quoting") {
  const Folder folder;
  const auto path = write(folder / "x.tsv", "word\tnote\n\"\tan \"inch\"\n\"a\t5\" \"\n");
  CHECK_THROWS_WITH(data::read_csv(path, {.separator = '\t'}), Contains("text after a closing quote"));
  const auto table = data::read_csv(path, {.separator = '\t', .quote = std::nullopt});
  CHECK(table.strings("word") == Strings{"\"", "\"a"});
  CHECK(table.strings("note") == Strings{"an \"inch\"", "5\" \""});
  CHECK_THROWS_WITH(data::read_csv(write(folder / "x", "a\r1\r"), {.quote = std::nullopt}), Contains("a CR without"));
}

TEST_CASE("quotes after a space are read with skip_initial_space") {
  const Folder folder;
  const auto path = write(folder / "x.csv", "a, \"b, c\",d\n 1,  \"x \"\"y\"\"\", \n");
  CHECK_THROWS_WITH(data::read_csv(path), Contains("a quote inside an unquoted field"));
  const auto table = data::read_csv(path, {.skip_initial_space = true});
  CHECK(table.names() == Strings{"a", "b, c", "d"});
  CHECK(table.at(0, 0) == "1");
  CHECK(table.at(0, 1) == "x \"y\"");
  CHECK(table.at(0, 2).empty());
  CHECK_THROWS_WITH(data::read_csv(path, {.separator = ' ', .skip_initial_space = true}),
                    Contains("skip_initial_space does not go with a separator"));
}

TEST_CASE("malformed tables are refused with the line and the reason") {
  const Folder folder;
  const auto check = [&](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_WITH(data::read_csv(write(folder / "x", text)), Equals((folder / "x").string() + ":" + message));
  };
  check("a,b\n1\n", "2: 1 fields, where the first row has 2");
  check("a,b\n\"1\n2\",3\n1,2,3\n", "4: 3 fields, where the first row has 2");
  check("a\n\"1\n\n", "2: a quote is not closed");
  check("a\n\"1\"2\n", "2: text after a closing quote");
  check("a\n1\"2\n", "2: a quote inside an unquoted field");
  CHECK_THROWS_WITH(data::read_csv(folder / "x", {.separator = '"'}), Contains("must differ"));
  CHECK_THROWS_WITH(data::read_csv(folder / "x", {.separator = '\n'}), Contains("no line ends"));
}

TEST_CASE("an empty line is a row of a table of one column") {
  const Folder folder;
  const auto table = data::read_csv(write(folder / "x.csv", "\nx\n1\n\n3\n\n"));
  CHECK(table.strings("x") == Strings{"1", "", "3", ""});
  CHECK_THROWS_WITH(table.column("x"), Contains("x.csv:4: column 'x': '' is missing"));
  CHECK(table.column("x", {.missing = -1}).to_vector<float>() == std::vector<float>{1, -1, 3, -1});
  CHECK(data::read_csv(write(folder / "x.csv", "x,y\n1,2\n\n3,4\n\n")).num_rows() == 2);
}

TEST_CASE("text in UTF-16 is named, and so is a field with a NUL, to its end") {
  const Folder folder;
  for (const std::string& mark : {"\xff\xfe"s, "\xfe\xff"s})
    CHECK_THROWS_WITH(data::read_csv(write(folder / "x.csv", mark + "a\0,\0b\0\n\0"s)),
                      Contains("x.csv:1: the text is UTF-16, by its byte order mark; convert it to UTF-8"));
  CHECK_THROWS_WITH(data::read_csv(write(folder / "x.csv", "a\0,\0b\0\n\0"s)),
                    Contains("x.csv:1: the text is UTF-16 without a byte order mark"));
  const auto table = data::read_csv(write(folder / "x.csv", "x\n1\0002\n"s));
  CHECK_THROWS_WITH(table.column("x"), Contains("'1\\02' is not a float32"));
}

TEST_CASE("a number out of a column's range is an Error") {
  const Folder folder;
  const auto table = data::read_csv(write(folder / "x.csv", "x\n1e39\n"));
  CHECK_THROWS_WITH(table.column("x"), Contains("'1e39' is not a float32"));
  CHECK_THROWS_WITH(table.column("x", {.dtype = kFloat16}), Contains("'1e39' is not a float16"));
  CHECK(table.column("x", {.dtype = kFloat64}).item<double>() == 1e39);
}

TEST_CASE("a file of another compression than gzip's is no text") {
  const Folder folder;
  for (const auto& [begin, what] : {std::pair{"PK\3\4"s, "a zip file"},
                                    {"BZh91AY&SY"s, "bzip2"},
                                    {"\x28\xb5\x2f\xfd"s, "zstd"},
                                    {"\xfd\x37zXZ\0"s, "xz"}}) {
    const auto path = write(folder / "x", begin + "a,b\n1,2\n");
    CHECK_THROWS_WITH(data::read_csv(path), Contains("x:1: this is ") && Contains(what));
    CHECK_THROWS_WITH(data::read_lines(path), Contains(what));
  }
}
