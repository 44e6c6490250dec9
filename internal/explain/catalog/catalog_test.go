/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/explain/catalog"
)

var update = flag.Bool("update", false, "write docs/reference/findings.md")

func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// reasonsOf reads the values of all constants whose names begin with Reason from the source of the API.
func reasonsOf(t *testing.T) map[string]string {
	t.Helper()
	reasons := constantsOf(t, "api/v1alpha1")
	maps.DeleteFunc(reasons, func(name, _ string) bool { return !strings.HasPrefix(name, "Reason") })
	return reasons
}

// constantsOf reads the values of all constants that are strings from the source of a package.
func constantsOf(t *testing.T, directory string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(), filepath.FromSlash(directory), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || len(spec.Names) != len(spec.Values) {
				return true
			}
			for i, name := range spec.Names {
				if value, ok := spec.Values[i].(*ast.BasicLit); ok && value.Kind == token.STRING {
					text, err := strconv.Unquote(value.Value)
					if err != nil {
						t.Fatal(err)
					}
					constants[name.Name] = text
				}
			}
			return true
		})
	}
	return constants
}

func TestEveryReasonOfTheAPIHasItsSentence(t *testing.T) {
	reasons := reasonsOf(t)
	if len(reasons) < 90 {
		t.Fatalf("%d reasons were found in the source of the API, want at least 90", len(reasons))
	}
	for constant, reason := range reasons {
		if e := catalog.OfReason(reason); e.Reason != reason {
			t.Errorf("reason %s (%s) has entry %s, want an entry of its own in the catalog", reason, constant, e.Reason)
		}
	}
}

// A reason that no program sets is a promise in the API and the documentation that nothing keeps.
func TestEveryReasonOfTheAPIIsSetByAProgram(t *testing.T) {
	used := usedOutsideTheCatalog(t)
	for constant := range reasonsOf(t) {
		if !used[constant] {
			t.Errorf("no program uses %s, want one that sets it, or the constant removed", constant)
		}
	}
}

// usedOutsideTheCatalog are the selectors in the source of the programs, except for what only explains.
func usedOutsideTheCatalog(t *testing.T) map[string]bool {
	t.Helper()
	used := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root(), "internal"), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "explain":
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if selector, ok := node.(*ast.SelectorExpr); ok {
				used[selector.Sel.Name] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func TestAReasonOfANewerVersionIsReportedAsUnknown(t *testing.T) {
	if e := catalog.OfReason("NeverHeardOf"); e.Reason != catalog.UnknownReason {
		t.Errorf("a reason that the catalog does not have has entry %s, want %s", e.Reason, catalog.UnknownReason)
	}
}

func TestCodesAreUniqueAndInOrder(t *testing.T) {
	var last catalog.Entry
	reasons := map[string]string{}
	for _, e := range catalog.All() {
		if !regexp.MustCompile(`^HWS[0-9]{3}$`).MatchString(e.Code) {
			t.Errorf("the entry of %s has code %q, want HWS and three digits", e.Reason, e.Code)
		}
		if e.Code <= last.Code {
			t.Errorf("code %s of %s follows %s of %s, want ascending codes", e.Code, e.Reason, last.Code, last.Reason)
		}
		if earlier, ok := reasons[e.Reason]; ok {
			t.Errorf("reason %s has the codes %s and %s, want one", e.Reason, earlier, e.Code)
		}
		reasons[e.Reason], last = e.Code, e
	}
}

func TestEveryProblemNamesWhatMustActAndAWayOut(t *testing.T) {
	for _, e := range catalog.All() {
		e = e.For(nil)
		if e.Says == "" || !strings.HasSuffix(e.Says, ".") {
			t.Errorf("%s %s says %q, want a sentence", e.Code, e.Reason, e.Says)
		}
		if e.Level != catalog.Problem || e.Reason == catalog.Unreadable || e.Reason == catalog.Missing {
			continue
		}
		if e.Acts == catalog.NoActor && e.Reason != catalog.UnknownReason {
			t.Errorf("%s %s is a problem and names no actor", e.Code, e.Reason)
		}
		if e.Way == "" && len(e.Run) == 0 && e.Reason != catalog.Stalled {
			t.Errorf("%s %s is a problem, and names neither a way out nor a command", e.Code, e.Reason)
		}
	}
}

// withdrawn codes are not used again.
var withdrawn = []string{"HWS334", "HWS423", "HWS424", "HWS714"}

// Codes are for ever. A new entry adds a line. A line goes only if nothing reports the finding any more.
func TestNoCodeEverChangesItsMeaning(t *testing.T) {
	path := filepath.Join("testdata", "codes.txt")
	var now []string
	for _, e := range catalog.All() {
		now = append(now, e.Code+" "+e.Reason)
		if slices.Contains(withdrawn, e.Code) {
			t.Errorf("%s has the code %s, which had another meaning in an earlier release", e.Reason, e.Code)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !slices.Contains(now, line) {
			t.Errorf("the catalog has no %q any more; a code that was released keeps its meaning", line)
		}
	}
	if missing := len(now) - strings.Count(string(text), "\n"); *update && !t.Failed() {
		if err := os.WriteFile(path, []byte(strings.Join(now, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if missing != 0 {
		t.Errorf("%d entries are not in %s; run the test with -update", missing, path)
	}
}

func TestCommandsAreLeftOutWhileAPlaceIsUnknown(t *testing.T) {
	e := catalog.Entry{Run: []string{"a {node}", "b {volume}", "c '{.spec}'"}}
	got := e.Commands(map[string]string{"node": "node-a", "volume": ""})
	if want := []string{"a node-a", "c '{.spec}'"}; !slices.Equal(got, want) {
		t.Errorf("commands %q, want %q: the volume is not known, and a JSONPath is no place", got, want)
	}
}

// TestACommandHasNamesOnly: the author of a pod chooses the name of its claim, and an administrator runs the command.
func TestACommandHasNamesOnly(t *testing.T) {
	for place, values := range map[string]map[string]bool{
		"claim": {"data": true, "data-web-0.b": true, "x;y": false, "$(reboot)": false, "x y": false, "--all": false,
			"x\ny": false, "x\x1b[2J": false, "é": false},
		"uid":       {"8D3F2b1c-6a0e": true, "`id`": false},
		"finalizer": {"external-attacher/disk-example-com": true, "a'b": false},
		"pods":      {"web-0 web-1": true, "web-0 --all": false, "web-0 ": false, "web-0;id": false},
		"volumes":   {"pv-1 pv-2": true, "pv-1 *": false},
	} {
		for value, want := range values {
			e := catalog.Entry{Run: []string{"kubectl get {" + place + "}"}}
			if got := e.Commands(map[string]string{place: value}); (len(got) == 1) != want {
				t.Errorf("commands %q of a %s that is %q, want one: %t", got, place, value, want)
			}
		}
	}
}

// TestNoCommandHasARemark: a remark behind a command is arguments to a shell that takes none at its prompt, as zsh
// does.
func TestNoCommandHasARemark(t *testing.T) {
	for _, e := range catalog.All() {
		for _, policy := range []catalog.State{catalog.Unread, catalog.Gone} {
			for _, node := range []catalog.State{catalog.Unread, catalog.Fenced, catalog.Contradicted} {
				e := e.For(catalog.States{catalog.Retain: policy, "node {node}": node, "node {holder}": node})
				run, remarks := catalog.Separate(e.Run)
				for i, command := range run {
					if strings.Contains(command, " #") || strings.Contains(e.Run[i], "#") != (remarks[command] != "") {
						t.Errorf("%s: command %q with the remark %q of %q, want them apart", e.Code, command, remarks[command], e.Run[i])
					}
				}
			}
		}
	}
}

// inState are the states of all objects that a command of the catalog may name.
func inState(state catalog.State) catalog.States {
	states := catalog.States{catalog.AllStuck: state, catalog.OtherMachine: state, catalog.OneAttachment: state,
		catalog.Users: state, catalog.Holders: state}
	for _, e := range catalog.All() {
		for _, command := range e.For(nil).Run {
			for _, object := range regexp.MustCompile(`[a-z]+ {[a-z]+}`).FindAllString(command, -1) {
				states[object] = state
			}
		}
	}
	states["nvs {node}"], states["nvs {holder}"] = state, state
	return states
}

// ofOthers are the entries whose way out is not about the object whose state counts.
var ofOthers = map[string]string{
	"HWS122": "the Node is being deleted, so it is there", "HWS407": "the intent of an orphan does not exist",
	"HWS512": "all intents", "HWS622": "the claim has no volume yet", "HWS644": "the intent does not exist",
	"HWS716": "the intents for another volume",
	"HWS925": "only what is being deleted waits for a finalizer",
}

func TestNoActIsAdvisedThatIsDoneOrCannotBeDone(t *testing.T) {
	for _, tt := range []struct {
		state         catalog.State
		commands, way string
	}{
		{catalog.Tainted, `^kubectl taint .*=`, `set the taint`},
		{catalog.Contradicted, `^kubectl taint .*=`, `set the taint`},
		{catalog.Fenced, `^kubectl taint node \S+ \S+=`, `set the taint, which also`},
		{catalog.Present, `^kubectl taint .*-(\s|$)`, `^$`},
		{catalog.Gone,
			`^kubectl (taint|describe|uncordon|delete|patch|label|get \S+ {)|why \S+ {|declare-released|top {|drain {`,
			`set the taint|^Start the agent|^Bring the agent`},
		{catalog.Deleting, `^kubectl (delete|patch|label)|^kubectl taint .*-(\s|$)`,
			`[Dd]elete the (intent|other user|pod or intent)|[Cc]reate the (intent|claim)|Set readOnly of the intent`},
		{catalog.Done, `declare-released`, `declare (the|their) attachments? released`},
		{catalog.Held, `^kubectl delete volumeattachment|declare-released`,
			`delete the attachment\.$|detach it there|declare their`},
		{catalog.Shared, `declare-released .*--`, `^Power the other machine off`},
		{catalog.Pinned, `^$`, `[Cc]reate the (claim|PersistentVolume)`},
	} {
		states := inState(tt.state)
		commands, way := regexp.MustCompile(tt.commands), regexp.MustCompile(tt.way)
		for _, e := range catalog.All() {
			if ofOthers[e.Code] != "" {
				continue
			}
			e = e.For(states)
			for _, command := range e.Run {
				if commands.MatchString(command) {
					t.Errorf("%s, everything in state %d: command %q, want none that matches %s", e.Code, tt.state, command,
						tt.commands)
				}
			}
			if e.Way != "" && way.MatchString(e.Way) {
				t.Errorf("%s, everything in state %d: %q, want no way out that matches %s", e.Code, tt.state, e.Way, tt.way)
			}
		}
	}
}

func TestTheReferencePageIsMadeFromTheCatalog(t *testing.T) {
	path := filepath.Join(root(), "docs", "reference", "findings.md")
	want := page()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/reference/findings.md differs from the catalog; run go test ./internal/explain/catalog -update")
	}
	for _, e := range catalog.All() {
		if !strings.Contains(string(got), "\n### "+e.Code+"\n") {
			t.Errorf("the page has no section %s, to which %s leads", e.Code, e.URL())
		}
	}
}

// stateTexts are the states for which entries have other ways out.
var stateTexts = map[catalog.State]string{catalog.Deleting: "being deleted", catalog.Gone: "gone",
	catalog.Unset:  "not known",
	catalog.Pinned: "resolved before", catalog.Present: "there", catalog.Done: "done",
	catalog.Held:   "held",
	catalog.Shared: "of two machines"}

// page is docs/reference/findings.md.
func page() string {
	var b strings.Builder
	b.WriteString("# Findings\n\n" +
		"What `kubectl hawser why`, `doctor` and `preflight` can find, by its code. [why.md](../why.md),\n" +
		"[doctor.md](../doctor.md) and [preflight.md](../preflight.md) explain the commands. The page is made from\n" +
		"`internal/explain/catalog` by `go test ./internal/explain/catalog -update`.\n\n" +
		"A code never changes its meaning. In commands, `{node}` and the like are replaced by names. A list after them\n" +
		"has the way out where the state of an object leaves no other.\n")
	sections := map[string]string{"0": "All is well", "1": "Claim, volume and set", "2": "Attach", "3": "On the node",
		"4": "Agents, node states and managers", "5": "The installation", "6": "Pods and claims of Kubernetes",
		"7": "Attachments and nodes of Kubernetes", "8": "What could not be read", "9": "Files",
		"92": "The whole cluster", "94": "Before an installation"}
	section := ""
	for _, e := range catalog.All() {
		e = e.For(nil)
		of := e.Code[3:4]
		switch {
		case e.Code > "HWS940":
			of = "94"
		case e.Code > "HWS920":
			of = "92"
		}
		if of != section {
			section = of
			b.WriteString("\n## " + sections[of] + "\n")
		}
		prose := fmt.Sprintf("`%s` (%s). %s %s", e.Reason, strings.ToLower(string(e.Level)), e.Says, e.Way)
		fmt.Fprintf(&b, "\n### %s\n\n%s\n", e.Code, wrapped(prose))
		if e.Acts != catalog.NoActor {
			fmt.Fprintf(&b, "\nActs: %s.\n", e.Acts)
		}
		b.WriteString(block(e.Run))
		for i, other := range e.Instead {
			if i == 0 {
				b.WriteString("\n")
			}
			text := wrapped(fmt.Sprintf("- `%s` %s: %s", other.Object, stateTexts[other.State], other.Way))
			b.WriteString(strings.ReplaceAll(text, "\n", "\n  ") + "\n")
		}
	}
	return b.String()
}

// block has commands without a remark first, and then each other one below its remark.
func block(commands []string) string {
	run, remarks := catalog.Separate(commands)
	plain, remarked := "", ""
	for _, command := range run {
		if remark := remarks[command]; remark != "" {
			remarked += "\n" + strings.ToUpper(remark[:1]) + remark[1:] + ":\n\n    " + command + "\n"
			continue
		}
		plain += "    " + command + "\n"
	}
	if plain != "" {
		plain = "\n" + plain
	}
	return plain + remarked
}

// wrapped breaks a paragraph into lines of at most 118 characters.
func wrapped(prose string) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(prose) {
		if line != "" && len(line)+1+len(word) > 118 {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return strings.Join(append(lines, line), "\n")
}
