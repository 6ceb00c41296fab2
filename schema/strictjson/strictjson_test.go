package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/strictjson"
)

// inner is embedded, as common parts of records are.
type inner struct {
	Count *int           `json:"count,omitempty"`
	Map   map[string]int `json:"map,omitempty"`
}

// record has what stored documents are made of.
type record struct {
	Name    string            `json:"name"`
	At      time.Time         `json:"at,omitzero"`
	Took    time.Duration     `json:"took,omitempty"`
	Bytes   []byte            `json:"bytes,omitempty"`
	List    []inner           `json:"list"`
	Next    *record           `json:"next,omitempty"`
	Any     any               `json:"any,omitempty"`
	Raw     json.RawMessage   `json:"raw,omitempty"`
	Text    map[keyed]*record `json:"text,omitempty"`
	Float   float64           `json:"float,omitempty"`
	Numbers [2]uint16         `json:"numbers"`
	inner
}

// keyed is a name that writes and reads itself.
type keyed struct{ name string }

func (k keyed) MarshalText() ([]byte, error) { return []byte("k:" + k.name), nil }

func (k *keyed) UnmarshalText(b []byte) error {
	name, ok := bytes.CutPrefix(b, []byte("k:"))
	if !ok {
		return errors.New("no k: before it")
	}
	k.name = string(name)
	return nil
}

// What is taken is read as encoding/json reads it.
func TestAsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`{}`, `null`, ` {"name":"x"} `,
		`{"name":"\u0000\ud83d\ude00\ud800 <&>"}`, "{\"name\":\"\xff\"}",
		`{"at":"2026-01-02T03:04:05.678+02:00","took":5000000000}`,
		`{"bytes":"AAECAw==","list":null}`, `{"list":[]}`, `{"list":[{"count":0},{"map":{"a":1,"b":2}},{}]}`,
		`{"next":{"next":null,"name":"y"}}`, `{"any":{"a":[1,2.5,"x",null,true]}}`, `{"raw":{"a" : 1}}`,
		`{"text":{"k:a":{"name":"z"},"k:b":null}}`, `{"float":1e3,"numbers":[1,65535]}`, `{"numbers":[1]}`, `{"numbers":[1,2,3]}`,
		`{"count":7,"map":{}}`,
	} {
		var want, got record
		if err := json.Unmarshal([]byte(doc), &want); err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if err := strictjson.Unmarshal([]byte(doc), &got); err != nil {
			t.Errorf("%s is refused: %v", doc, err)
		} else if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{}, keyed{})); diff != "" {
			t.Errorf("%s (-encoding/json +strictjson):\n%s", doc, diff)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		``, `{`, `{"name":"x"}}`, `{"name":"x"} {}`, `{"name":1}`, `{"later":1}`, `{"next":{"later":1}}`,
		`{"name":"x","name":"y"}`, `{"Name":"x"}`, `{"numbers":[70000]}`, `{"at":"yesterday"}`,
	} {
		if err := strictjson.Unmarshal([]byte(doc), new(record)); err == nil {
			t.Errorf("%s is taken", doc)
		}
	}
}

// FuzzAsEncodingJSON looks for what is taken, and read in another way than encoding/json reads it.
func FuzzAsEncodingJSON(f *testing.F) {
	f.Add([]byte(`{"name":"x","at":"2026-01-02T03:04:05Z","list":[{"count":1}],"any":[1,"a",{}],"text":{"k:a":{}}}`))
	f.Add([]byte(`{"raw":1e5,"float":-0.0,"bytes":"AA==","numbers":[1,2]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var want, got record
		if strictjson.Unmarshal(doc, &got) != nil {
			return
		}
		if err := json.Unmarshal(doc, &want); err != nil {
			t.Fatalf("encoding/json refuses it: %v", err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{}, keyed{})); diff != "" {
			t.Errorf("(-encoding/json +strictjson):\n%s", diff)
		}
	})
}
