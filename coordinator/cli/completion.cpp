#include "cli/completion.hpp"

#include "cli/options.hpp"

#include <fmt/format.h>

namespace stacksaga::coordinator {
namespace {

/// "command) words="--a --b" ;;" for each command.
std::string cases() {
    std::string lines;
    for (const CommandText &text : command_texts()) {
        CLI::App app;
        CommandWords command;
        command.command = text.command;
        command.app = app.add_subcommand(text.name, text.what);
        add_options(command, "");
        std::string words;
        for (const CLI::Option *option : command.app->get_options())
            for (const std::string &name : option->get_lnames())
                words += (words.empty() ? "--" : " --") + name;
        lines += fmt::format("        {}) words=\"{} --config\" ;;\n", text.name, words);
    }
    return lines;
}

std::string commands() {
    std::string names;
    for (const CommandText &text : command_texts())
        names += (names.empty() ? "" : " ") + std::string(text.name);
    return names;
}

} // namespace

std::string completion_script(const std::string &shell) {
    if (shell != "bash" && shell != "zsh")
        return {};
    const std::string script =
        fmt::format("_stacksaga_coordinator() {{\n"
                    "    local words\n"
                    "    case ${{COMP_WORDS[1]}} in\n"
                    "{}"
                    "        *) words=\"{} --help --version\" ;;\n"
                    "    esac\n"
                    "    [ \"$COMP_CWORD\" -gt 1 ] || words=\"{} --help --version\"\n"
                    "    COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
                    "}}\n"
                    "complete -o default -F _stacksaga_coordinator "
                    "stacksaga-coordinator\n",
                    cases(), commands(), commands());
    return (shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "") + script;
}

} // namespace stacksaga::coordinator
