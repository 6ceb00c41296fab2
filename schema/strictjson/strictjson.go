package strictjson

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// options are those of encoding/json, but that names are as they are written, and once each, that
// there is a place for each, and that what an error leaves behind does not matter.
var options = json.JoinOptions(jsonv1.DefaultOptionsV1(), jsonv1.ReportErrorsWithLegacySemantics(false),
	json.MatchCaseInsensitiveNames(false), jsontext.AllowDuplicateNames(false), json.RejectUnknownMembers(true))

// Unmarshal reads doc into v, a pointer to a zero value. It errs if doc is no JSON, has anything
// that v has no place for, a name twice, or one in letters of another case; v may be
// half read then. Where it does not err, v is as encoding/json reads it.
func Unmarshal(doc []byte, v any) error { return json.Unmarshal(doc, v, options) }
