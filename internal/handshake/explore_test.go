package handshake

import (
	"os"
	"strings"
	"testing"
	"time"
)

var allWorlds = []world{
	{name: "one node", nodes: 1, leaders: 2, cuts: true},
	{name: "one node, calls", nodes: 1, leaders: 2, cuts: true, calls: true, crash: true},
	{name: "one node, late", nodes: 1, leaders: 2, cuts: true, crash: true, late: true},
	{name: "one node, all agent", nodes: 1, leaders: 1, cuts: true, calls: true, crash: true, late: true, reboot: true, hand: true},
	{name: "one node, lies", nodes: 1, leaders: 2, cuts: true, calls: true, crash: true, late: true, lies: true},

	{name: "force", nodes: 1, leaders: 2, cuts: true, force: true, reboot: true, crash: true},
	{name: "force uncut", nodes: 1, leaders: 2, cuts: false, force: true, reboot: true, crash: true},
	{name: "lost", nodes: 1, leaders: 1, cuts: false, force: true, lost: true},
	{name: "intents", nodes: 1, leaders: 2, cuts: true, intents: true},
	{name: "kubelet", nodes: 1, leaders: 2, cuts: true, kubelet: true},
	{name: "exclusive", nodes: 2, leaders: 2, cuts: true, exclusive: true},
	{name: "exclusive force", nodes: 2, leaders: 2, cuts: true, exclusive: true, force: true},
}

func TestScratch(t *testing.T) {
	for _, w := range allWorlds {
		if f := os.Getenv("W"); f != "" && !strings.HasPrefix(w.name, f) {
			continue
		}
		start := time.Now()
		e, v, err := newModel(w, Guard(os.Getenv("G")), effect(os.Getenv("E"))).explore(3000000)
		took := time.Since(start)
		if v == nil && err == nil {
			v = e.trapped()
		}
		t.Logf("%s: %d states %d edges %s +%s %v", w.name, len(e.states), len(e.targets), took, time.Since(start)-took, err)
		if v != nil {
			t.Errorf("%s", v)
		}
	}
}
