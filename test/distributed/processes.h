#pragma once
#include <chrono>
#include <map>
#include <string>

/// A process that runs one test case of this program (fork() alone would not do: the library has threads). It is killed
/// when this object goes, and ends when the test does.
class Child {
 public:
  /// The test case finds the variables in its environment.
  explicit Child(const std::string& test_case, std::map<std::string, std::string> variables = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }
  void signal(int number);
  /// Reads what the child prints until a line begins with this; returns the rest of the line. Fails the test, with all
  /// that was printed, if there is none in time.
  std::string expect(const std::string& beginning, std::chrono::milliseconds limit = std::chrono::seconds(10));
  /// Its exit code, or 128 and the signal that ended it. Fails the test if it does not end in time.
  int wait(std::chrono::milliseconds limit = std::chrono::seconds(10));

 private:
  bool read_more(std::chrono::steady_clock::time_point deadline);

  int pid_ = -1, output_ = -1;
  size_t read_ = 0;  // of text_: what expect() has seen
  std::string text_;
};

/// In a child: prints a line for Child::expect().
void tell(const std::string& line);
/// In a child: a variable that the parent has set.
std::string given(const char* variable);
/// In a child, first: it ends when its parent does, and in 60 s at the latest.
void be_a_child();
