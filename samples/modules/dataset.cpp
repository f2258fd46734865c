#include "dataset.h"

#include <charconv>
#include <fstream>

#include "reel/error.h"

using namespace reel;

namespace {

Part read_part(const std::filesystem::path& folder, const std::string& name) {
  const auto array = folder / (name + ".npy"), text = folder / (name + ".txt");
  Part part{io::load_npy(array), {}};
  REEL_CHECK(part.scenes.dtype() == kUInt8 && part.scenes.dim() == 4 && part.scenes.numel() > 0, array.string(),
             ": expected scenes as uint8 [n, channels, height, width], got ", part.scenes.dtype(), " ",
             part.scenes.shape());
  int64_t number = 0;
  data::for_each_line(text, [&](std::string_view line) {
    const std::string where = text.string() + ":" + std::to_string(++number) + ": ";
    if (line.empty()) return;
    const std::vector<std::string> fields = data::split_words(line, "\t");
    REEL_CHECK(fields.size() == 3, where, "expected a scene, an answer and a program with tabs between, got ",
               fields.size(), " fields");
    int64_t scene = -1;
    const auto [end, error] = std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), scene);
    REEL_CHECK(
        error == std::errc() && end == fields[0].data() + fields[0].size() && scene >= 0 && scene < part.scenes.size(0),
        where, "expected a scene between 0 and ", part.scenes.size(0) - 1, ", got '", fields[0], "'");
    part.questions.push_back({scene, fields[1], parse_program(fields[2], where)});
  });
  REEL_CHECK(!part.questions.empty(), text.string(), ": there is no question");
  return part;
}

void write_part(const Part& part, const std::filesystem::path& folder, const std::string& name) {
  io::save_npy(part.scenes, folder / (name + ".npy"));
  const auto path = folder / (name + ".txt");
  std::ofstream text(path);
  for (const Question& question : part.questions)
    text << question.scene << '\t' << question.answer << '\t' << question.program.to_string() << '\n';
  text.close();
  REEL_CHECK(text, path.string(), ": the questions could not be written");
}

}  // namespace

Corpus read_corpus(const std::filesystem::path& folder) {
  Corpus corpus{read_part(folder, "train"), read_part(folder, "dev"), read_part(folder, "test")};
  const Shape shape = corpus.train.scenes[0].shape();
  for (const Tensor& scenes : {corpus.dev.scenes, corpus.test.scenes})
    REEL_CHECK(scenes[0].shape() == shape, folder.string(), ": the scenes of train.npy are ", shape, ", others ",
               scenes[0].shape());
  return corpus;
}

void write_corpus(const Corpus& corpus, const std::filesystem::path& folder) {
  create_directories(folder);
  write_part(corpus.train, folder, "train"), write_part(corpus.dev, folder, "dev");
  write_part(corpus.test, folder, "test");
}

Words::Words(const std::vector<Question>& questions) : all({"and", "or", "exists", "count"}) {
  for (const Question& question : questions) add(question.program), answers.add(question.answer);
}

void Words::add(const Program& program) {
  if (program.kind == Program::kFind) find.add(program.word);
  if (program.kind == Program::kRelocate) relocate.add(program.word);
  if (program.kind == Program::kDescribe) describe.add(program.word);
  if (!program.word.empty()) all.add(program.word);
  for (const Program& part : program.parts) add(part);
}

Words::Words(const io::Metadata& metadata) {
  const auto read = [&](const char* name) {
    const auto found = metadata.find(name);
    REEL_CHECK(found != metadata.end(), "the file is no model of this program: it has no ", name);
    return data::Vocabulary::from_string(found->second);
  };
  find = read("find"), relocate = read("relocate"), describe = read("describe");
  answers = read("answers"), all = read("all");
}

io::Metadata Words::metadata() const {
  return {{"find", find.to_string()},
          {"relocate", relocate.to_string()},
          {"describe", describe.to_string()},
          {"answers", answers.to_string()},
          {"all", all.to_string()}};
}

void Words::check(const Program& program, const std::string& where) const {
  const auto known = [&](Program::Kind kind, const data::Vocabulary& words, const char* what) {
    REEL_CHECK(program.kind != kind || words.contains(program.word), where, "the training set has no ", what,
               " module '", program.word, "'");
  };
  known(Program::kFind, find, "find"), known(Program::kRelocate, relocate, "relocating");
  known(Program::kDescribe, describe, "describing");
  for (const Program& part : program.parts) check(part, where);
}

void Words::encode(std::vector<Question>& questions, const std::string& part) const {
  for (size_t i = 0; i < questions.size(); ++i) {
    Question& question = questions[i];
    const std::string where = part + ": question " + std::to_string(i + 1) + ": ";
    check(question.program, where);
    REEL_CHECK(answers.contains(question.answer), where, "the answer '", question.answer,
               "' does not occur in the training set");
    question.words = all.encode(question.program.names());
    question.target = tensor({answers.id(question.answer)});
  }
}
