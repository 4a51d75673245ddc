#include "cli/parse_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>

#include "cli/complete_options.hpp"
#include "cli/option_flags.hpp"
#include "moelane/error.hpp"

namespace moelane::tools {

std::optional<Options> parse_options(int argc, char** argv) {
  Options o;
  UnfinishedOptions unfinished;
  o.config.experts = 256;
  o.config.topk = 8;
  o.config.hidden = 7168;
  o.config.dtype = DType::fp8_e4m3;

  CLI::App app("Moves mixture-of-experts tokens to their experts and back, and checks every byte.",
               "moelane");
  app.set_version_flag("--version", "moelane " MOELANE_VERSION);
  app.require_subcommand(1);
  CLI::App* run =
      app.add_subcommand("run", "do the job on this machine and check it against a plain reference");
  CLI::App* bench = app.add_subcommand("bench", "time it, beside the floor of the memory");
  CLI::App* plan =
      app.add_subcommand("plan", "heap sizes, bytes on each link and floors, before anything is allocated");
  CLI::App* doctor = app.add_subcommand("doctor", "what this machine has and which transports will work");
  for (CLI::App* job : {run, bench, plan}) add_job_options(*job, o, unfinished);
  for (CLI::App* job : {run, bench, plan, doctor}) add_json_option(*job, o);
  add_own_options(*bench, *plan, o);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
    app.exit(e);
    return std::nullopt;
  } catch (const CLI::CallForVersion& e) {
    app.exit(e);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    // The parser quotes arguments as they are; a line break in one would make two lines of the sentence.
    std::string what = e.what();
    std::replace_if(
        what.begin(), what.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    const auto jobs = app.get_subcommands();
    throw Error(ErrorKind::argument, fmt::format("{}; moelane {}--help says what is allowed", what,
                                                 jobs.empty() ? "" : jobs.front()->get_name() + " "));
  }
  if (*doctor) {
    o.command = Command::doctor;
    return o;
  }
  o.command = *bench ? Command::bench : *plan ? Command::plan : Command::run;
  if (*bench && bench->count("--steps") == 0) o.steps = 20;
  complete_options(o, unfinished);
  return o;
}

}  // namespace moelane::tools
