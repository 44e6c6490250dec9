/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hawser-io/hawser/test/apiserver"
)

// placeholders of the pages, and the objects of testdata/cluster.yaml that take their places, in this order.
var placeholders = []struct{ placeholder, object string }{
	{`\b(intent|vai) (NAME|<name>)`, "$1 data-on-node-a"},
	{`\bpod NAME\b`, "pod web"},
	{`(\bvais |intent-set=)NAME\b|(\bvais -n NS )NAME\b`, "$1${2}models"},
	{`\b(pvc )NAME\b`, "${1}data"},
	{`\bINTENT\b`, "data-on-node-a"},
	{`\bPOD\b`, "web"},
	{`\bNODE\b|<node>`, "node-a"},
	{`\bHOLDER\b`, "node-b"},
	{`\bNAMESPACE\b|\bNS\b|<namespace>`, "shop"},
	{`\bVOLUME\b`, "pv-1"},
	{`\bDRIVER\b`, "loop"},
	{`csi-a46d7a27\.\.\.`, "csi-a46d7a27"},
	{`<uid>|\bUID\b$|\bID$|8d3f\.\.\.`, "8d3f2b1c-6a0e-4f7e-9d57-2f1b7a3f9c10"},
	{`/tmp/`, "./"},
}

// exceptions are commands that do not run here, with the reason.
var exceptions = map[string]string{
	"kubectl -n hawser-system get servicemonitors,podmonitors      # with the Prometheus operator": "needs its kinds",
	"kubectl apply -f olm.yaml":                        "needs the kinds of OLM",
	"kubectl krew install --manifest=hawser-krew.yaml": "make verify-release does",
	"kubectl krew install --manifest=hawser-krew.yaml --archive=kubectl-hawser_v0.1.0_linux_amd64.tar.gz   # offline": "" +
		"make verify-release does",
	"kubectl krew uninstall hawser":        "needs krew in its place",
	"kubectl apply -f dist/observer.yaml":  "make test-release does",
	"kubectl delete -f dist/observer.yaml": "make test-release does",
	"kubectl apply -f dist/install.yaml":   "make test-release does, in an overlay",
	"kubectl create clusterrole fence-power --verb=get,list,watch --resource=baremetalhosts.metal3.io": "" +
		"needs the kinds of Metal3",
	"kubectl get ... -o yaml | kubectl replace -f -": "stands for any object",
}

// named are commands that a sentence only names. kubectl or the plugin has to know them.
var named = []string{
	"kubectl apply", "kubectl debug", "kubectl debug node", "kubectl delete", "kubectl delete -k",
	"kubectl delete namespace", "kubectl delete pod --force", "kubectl delete vai", "kubectl drain", "kubectl get -l",
	"kubectl hawser", "kubectl hawser why", "kubectl hawser why intent", "kubectl logs", "kubectl replace", "kubectl wait",
}

// last are commands that change what others read, although nothing else does.
var last = regexp.MustCompile(`\brollout restart\b`)

func TestEveryCommandOfThePagesIsAccepted(t *testing.T) {
	uses := commandsOfAllPages(t)
	c := newCluster(t)
	try := func(text string) {
		resolved := resolve(text)
		if output, err := c.run(t, apiserver.Commands(t, resolved)); err != nil {
			t.Errorf("%s\nruns as %s: %v, want it accepted:\n%s", uses[text], resolved, err, output)
		}
	}
	var running sync.WaitGroup
	free := make(chan struct{}, 4)
	for text := range uses {
		if exceptions[text] != "" || last.MatchString(text) {
			continue
		}
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			try(text)
		})
	}
	running.Wait()
	for text := range uses {
		if last.MatchString(text) {
			try(text)
		}
	}
	thePipelineWaits(t, c)
}

// commandsOfAllPages are the commands, each with its first use.
func commandsOfAllPages(t *testing.T) map[string]command {
	t.Helper()
	pages := pages(t, apiserver.Root())
	uses := map[string]command{}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for _, found := range commandsOf(t, page, pages[page]) {
			if _, known := uses[found.text]; !known {
				uses[found.text] = found
			}
		}
	}
	return uses
}

func TestThePagesStillHaveEachExceptionAndPlaceholder(t *testing.T) {
	uses := commandsOfAllPages(t)
	for _, text := range slices.Concat(slices.Collect(maps.Keys(exceptions)), named) {
		if _, used := uses[text]; !used {
			t.Errorf("no page has %q any more, which this test excepts", text)
		}
	}
	for _, p := range placeholders {
		used := false
		for text := range uses {
			used = used || regexp.MustCompile(p.placeholder).MatchString(text)
		}
		if !used {
			t.Errorf("no command has %s any more, which this test replaces", p.placeholder)
		}
	}
}

// resolve puts objects in the places of the placeholders.
func resolve(text string) string {
	if slices.Contains(named, text) {
		command, _, _ := strings.Cut(text, " -")
		return command + " --help"
	}
	for _, p := range placeholders {
		text = regexp.MustCompile(p.placeholder).ReplaceAllString(text, p.object)
	}
	return text
}
