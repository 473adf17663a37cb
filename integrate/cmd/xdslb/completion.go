// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"strings"
)

var completionCommand = command{
	name: "completion", args: "SHELL", summary: "print completion for bash, zsh or fish",
	about:   "Prints a script that completes commands and flags.",
	example: "source <(xdslb completion bash)\nxdslb completion fish > ~/.config/fish/completions/xdslb.fish",
}

func init() { // avoids an initialization cycle with commands
	completionCommand.flags = func(e *env, _ *flag.FlagSet) func([]string) (bool, error) {
		return func(args []string) (bool, error) {
			if err := want(args, "SHELL"); err != nil {
				return false, err
			}
			print := map[string]func(){"bash": e.completeBash, "zsh": e.completeZsh, "fish": e.completeFish}[args[0]]
			if print == nil {
				return false, usageError(fmt.Sprintf("unsupported shell %q: use bash, zsh or fish", args[0]))
			}
			print()
			return false, nil
		}
	}
}

// flagNames returns the flags of a command with their descriptions.
func flagNames(c *command) (names, about []string) {
	fs := newFlagSet(c, &env{})
	c.flags(&env{}, fs)
	fs.VisitAll(func(f *flag.Flag) {
		_, text := flag.UnquoteUsage(f)
		names, about = append(names, "-"+f.Name), append(about, strings.ReplaceAll(text, "'", ""))
	})
	return names, about
}

func commandNames() string {
	var names []string
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return strings.Join(append(names, "help"), " ")
}

func (e *env) completeBash() {
	fmt.Fprintf(e.stdout, "_xdslb() {\n\tlocal words\n\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range commands() {
		names, _ := flagNames(&c)
		fmt.Fprintf(e.stdout, "\t%s) words='%s' ;;\n", c.name, strings.Join(names, " "))
	}
	fmt.Fprintf(e.stdout, "\tesac\n\tif ((COMP_CWORD == 1)) || [[ ${COMP_WORDS[1]} == help ]]; then words='%s'; fi\n", commandNames())
	fmt.Fprint(e.stdout, "\tif [[ ${COMP_WORDS[1]} == completion ]] && ((COMP_CWORD == 2)); then words='bash zsh fish'; fi\n"+
		"\tCOMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -o default -F _xdslb xdslb\n")
}

func (e *env) completeZsh() {
	fmt.Fprint(e.stdout, "#compdef xdslb\nautoload -U +X bashcompinit && bashcompinit\n")
	e.completeBash()
}

func (e *env) completeFish() {
	for _, c := range commands() {
		fmt.Fprintf(e.stdout, "complete -c xdslb -n __fish_use_subcommand -f -a %s -d '%s'\n", c.name, c.summary)
		names, about := flagNames(&c)
		for i, name := range names {
			fmt.Fprintf(e.stdout, "complete -c xdslb -n '__fish_seen_subcommand_from %s' -o %s -d '%s'\n", c.name, strings.TrimPrefix(name, "-"), about[i])
		}
	}
	fmt.Fprintf(e.stdout, "complete -c xdslb -n '__fish_seen_subcommand_from help' -f -a '%s'\n", commandNames())
	fmt.Fprint(e.stdout, "complete -c xdslb -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n")
}
