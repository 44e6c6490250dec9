/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package catalog_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/hawser-io/hawser/internal/explain/catalog"
)

// obeyed are the suites that carry out what a finding advises, each with how its tests name the code.
var obeyed = map[string]*regexp.Regexp{
	"test/advice":  regexp.MustCompile(`(?:\bcode: |\b(?:broken|kept)\()"(HWS\d{3})"`),
	"test/verdict": regexp.MustCompile(`admin:\s+verdict\{"(HWS\d{3})"|\blater: "(HWS\d{3})"`),
}

// Reasons for which the advice of a code is carried out by no test.
const (
	informs   = "informs: nothing waits for what it is about"
	works     = "a program works on it and ends it; what keeps the program from that has a code of its own"
	beside    = "found beside its cause, whose code comes first and has the advice"
	refused   = "the API server refuses what leads to it; objects of an earlier release may have it"
	lost      = "Kubernetes' controller of claims makes the claim Lost at once, which is HWS104"
	seLinux   = "needs a kernel with SELinux"
	version   = "needs another version of Hawser or of Kubernetes"
	ownDevice = "the loop driver gives a publication for reading a device of its own"
	fences    = "internal/operator mends it, against an API server"
	labels    = "test/manager mends it, against an API server"
	health    = "needs a driver that reports the health of its storage"
)

// untried are the codes whose advice no test carries out, with the reason.
var untried = map[string]string{
	"HWS102": beside, "HWS103": works, "HWS108": lost,
	"HWS122": "test/manager declares the release; a local cluster has no autoscaler that waits for it",
	"HWS153": beside, "HWS155": beside, "HWS156": works, "HWS158": works,
	"HWS201": works, "HWS203": works, "HWS205": works, "HWS210": beside,
	"HWS211": beside,
	"HWS212": "needs a node state of a megabyte: thousands of volumes on one node", "HWS214": works,
	"HWS220": "test/kubelet has the machine come back; a local cluster has no fence source",
	"HWS301": works, "HWS302": works, "HWS303": works, "HWS312": beside, "HWS314": beside,
	"HWS318": "the loop driver mounts with each option that an intent may ask for",
	"HWS319": refused, "HWS320": seLinux, "HWS325": beside,
	"HWS327": "the agent mounts again what was unmounted, and a foreign mount in its place is HWS322",
	"HWS330": ownDevice, "HWS331": ownDevice,
	"HWS333": "the loop driver reports what it finds of a sick volume itself, which is HWS433",
	"HWS336": seLinux,
	"HWS401": works, "HWS402": works, "HWS403": beside, "HWS406": beside, "HWS407": beside,
	"HWS408": informs, "HWS410": beside,
	"HWS414": beside, "HWS418": beside, "HWS420": beside, "HWS421": beside,
	"HWS422": "needs a machine that keeps its disk and gets another name: test/manager plays it",
	"HWS426": informs, "HWS430": works,
	"HWS431": "the loop driver cannot release under another node ID what it mounted under the first",
	"HWS432": health, "HWS434": beside, "HWS435": works,
	"HWS436": works, "HWS437": fences, "HWS438": beside,
	"HWS439": "test/manager has the agent report after the lift; a local cluster has no fence source",
	"HWS499": version,
	"HWS520": fences, "HWS521": fences, "HWS522": fences,
	"HWS523": "a name cannot be changed", "HWS524": labels, "HWS525": "needs an admission policy of another program",
	"HWS526": "internal/controller/intentset plays it: it takes more than thirty sets",
	"HWS603": beside, "HWS608": works, "HWS611": beside, "HWS612": informs, "HWS628": works,
	"HWS629": "only provisioners within Kubernetes, which are gone, let a deletion fail for good", "HWS632": informs,
	"HWS640": informs, "HWS641": informs, "HWS645": beside, "HWS646": beside,
	"HWS642": "needs a cluster that adds a node, as by an autoscaler",
	"HWS649": "internal/controller/placement plays it", "HWS701": beside, "HWS702": beside,
	"HWS708": beside, "HWS717": works,
	"HWS803": informs, "HWS804": "the API server does not answer, and any command fails", "HWS805": informs,
	"HWS901": informs, "HWS902": informs,
	"HWS926": "the loop driver refuses to attach a volume of one writer twice", "HWS934": seLinux,
	"HWS935": "test/e2e restores a backup, and brings the silent agents back",
	"HWS941": version, "HWS942": version, "HWS943": version, "HWS944": version, "HWS958": seLinux,
	"HWS959": "informs: only a driver that asks for less ends it, and nothing waits for that",
}

// carried are the suites that carry out the advice of each code.
func carried(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for suite, pattern := range obeyed {
		for _, file := range tests(t, suite) {
			for _, code := range groupsIn(t, file, pattern) {
				found[code] = append(found[code], suite)
			}
		}
	}
	return found
}

// out is what the page has of a code: the suites that carry out its advice, or why none does.
func out(suites map[string][]string, code string) string {
	if len(suites[code]) > 0 {
		return of(suites, catalog.Entry{Code: code})
	}
	return "no: " + untried[code]
}

func TestTheAdviceOfEveryCodeIsCarriedOutOrHasAReason(t *testing.T) {
	suites, known := carried(t), map[string]bool{}
	for _, e := range catalog.All() {
		known[e.Code] = true
		switch reason := untried[e.Code]; {
		case e.Level == catalog.Fine:
		case len(suites[e.Code]) == 0 && reason == "":
			t.Errorf("no test carries out the advice of %s %s; add a situation to test/advice, or the reason why not", e.Code,
				e.Reason)
		case len(suites[e.Code]) > 0 && reason != "":
			t.Errorf("%s carries out the advice of %s; remove the reason why none does: %s",
				strings.Join(suites[e.Code], ", "), e.Code, reason)
		}
	}
	for code := range untried {
		if !known[code] {
			t.Errorf("there is a reason for %s, which the catalog does not have", code)
		}
	}
}
