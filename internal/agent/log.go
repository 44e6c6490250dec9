/*
Copyright 2026 The Hawser Authors.
SPDX-License-Identifier: Apache-2.0
*/

package agent

// logAct tells what is about to be done: what changes a mount always, the rest to who wants to follow closely. The node is in
// every line. Names only, never what a Secret or a volume's attributes hold.
func (a *Environment) logAct(v *volume, f facts, next act) {
	log := a.Log
	if !steps[next.verb].logged {
		log = log.V(1)
	}
	if !log.Enabled() {
		return
	}
	intents := make([]string, 0, len(f.intents))
	for _, i := range f.intents {
		if next.intent == "" || next.intent == i.UID {
			intents = append(intents, i.Namespace+"/"+i.Name)
		}
	}
	log.Info("acting", "act", next.verb, "volume", v.name, "intents", intents)
}
