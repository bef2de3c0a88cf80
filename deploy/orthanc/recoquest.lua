-- Has recoquest's workers take a study over as soon as it is stable: no instance came for "StableAge" seconds.
-- The address and a key with the role admin are in the section "Recoquest" of Orthanc's configuration.
-- Where a sync waits already, the answer is 409: that one brings this study over, too.

function OnStableStudy(studyId, tags, metadata)
  local recoquest = GetOrthancConfiguration()["Recoquest"]
  local headers = {
    ["Authorization"] = "Bearer " .. recoquest["Key"],
    ["Content-Type"] = "application/json"
  }
  pcall(HttpPost, recoquest["Jobs"], '{"kind": "pacs_sync"}', headers)
end
