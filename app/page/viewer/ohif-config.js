/**
 * Configuration of OHIF, read before its own scripts: the archive behind this service, and an extension that tells the page around which image
 * is the active one, and whose images are shown. Outside of that page the viewer leads to it.
 */
/* eslint-env browser */
(() => {
  /** The fragment with which that page opens the first study of an address of OHIF, which reads names in any case. @param {string} query */
  const studyOf = (query) => {
    const named = new Map([...new URLSearchParams(query)].reverse().map(([name, value]) => [name.toLowerCase(), value.split(',')[0]]));
    const parameters = new URLSearchParams();
    for (const [name, theirs] of [['study', 'studyinstanceuids'], ['series', 'initialseriesinstanceuid'], ['image', 'initialsopinstanceuid']]) {
      if (named.get(theirs)) parameters.set(name, named.get(theirs));
    }
    return [...parameters].length > 0 ? `#${parameters}` : '';
  };

  // Where the service is, which a proxy may have put below a path.
  const base = new URL('..', document.currentScript.src).pathname;
  if (window.parent === window) {
    // Only the page around the viewer says whose images are open, so OHIF, which has no configuration here, does not start.
    window.location.replace(`${base}reading${studyOf(window.location.search)}`);
    return;
  }
  const archive = `${base}dicomweb`;
  window.PUBLIC_URL = `${base}viewer/`;
  window.browserImportFunction = (name) => import(name);

  /** The parts of a person's name as one text: OHIF has it as text, as an object or as a list. */
  const nameOf = (value) => {
    const first = Array.isArray(value) ? value[0] : value;
    const text = typeof first === 'object' && first !== null ? first.Alphabetic : first;
    return typeof text === 'string' ? text : '';
  };

  const patientOf = (image) => ({ name: nameOf(image.PatientName), id: image.PatientID ?? '' });

  const instancesOf = (set) => set.instances ?? (set.instance ? [set.instance] : []);

  /** The patients of the images in all viewports. */
  const shownPatients = ({ viewportGridService, displaySetService }) => [...viewportGridService.getState().viewports.values()]
    .flatMap(({ displaySetInstanceUIDs }) => displaySetInstanceUIDs ?? [])
    .map((uid) => displaySetService.getDisplaySetByUID(uid))
    .filter((set) => set && instancesOf(set).length > 0)
    .map((set) => patientOf(instancesOf(set)[0]));

  /** The image that the active viewport shows; of a stack the one that is scrolled to. */
  const activeImage = ({ viewportGridService, displaySetService, cornerstoneViewportService }) => {
    const { viewports, activeViewportId } = viewportGridService.getState();
    const shown = viewports.get(activeViewportId)?.displaySetInstanceUIDs?.[0];
    const set = shown && displaySetService.getDisplaySetByUID(shown);
    if (!set) return null;
    const instances = instancesOf(set);
    const viewport = cornerstoneViewportService?.getCornerstoneViewport?.(activeViewportId);
    const index = viewport?.getCurrentImageIdIndex?.() ?? 0;
    const image = instances[index] ?? instances[0] ?? {};
    return {
      study: set.StudyInstanceUID,
      series: set.SeriesInstanceUID,
      sop: image.SOPInstanceUID ?? set.SOPInstanceUID ?? null,
      frame: (image.NumberOfFrames ?? 1) > 1 ? index + 1 : null,
      patient: patientOf(image),
      date: image.StudyDate ?? '',
    };
  };

  /** The images of one of the studies in the address, the one that the address names first. @param {number} index */
  const imagesOf = (index) => ({
    studyMatchingRules: [{ attribute: 'studyInstanceUIDsIndex', from: 'options', required: true, constraint: { equals: { value: index } } }],
    seriesMatchingRules: [
      { attribute: 'numImageFrames', constraint: { greaterThan: { value: 0 } } },
      { attribute: 'isDisplaySetFromUrl', weight: 20, constraint: { equals: true } },
    ],
  });

  /** A viewport of those images. @param {string} images */
  const viewportOf = (images) => ({
    viewportOptions: { viewportType: 'stack', toolGroupId: 'default', allowUnmatchedView: true },
    displaySets: [{ id: images }],
  });

  /** Two studies of one patient, side by side. */
  const sideBySide = {
    id: '@recoquest/side-by-side',
    name: 'Side by side',
    description: 'Two studies, side by side',
    numberOfPriorsReferenced: 1,
    protocolMatchingRules: [],
    toolGroupIds: ['default'],
    displaySetSelectors: { open: imagesOf(0), beside: imagesOf(1) },
    defaultViewport: { ...viewportOf('open'), displaySets: [{ id: 'open', matchedDisplaySetsIndex: -1 }] },
    stages: [{
      name: 'side by side',
      viewportStructure: { layoutType: 'grid', properties: { rows: 1, columns: 2 } },
      viewports: [viewportOf('open'), viewportOf('beside')],
    }],
  };

  const tellActive = {
    id: 'recoquest.active-image',
    getHangingProtocolModule: () => [{ name: sideBySide.id, protocol: sideBySide }],
    onModeEnter({ servicesManager }) {
      const { services } = servicesManager;
      let sent = '';
      const tell = () => {
        const image = activeImage(services);
        const patients = shownPatients(services);
        const text = JSON.stringify([image, patients]);
        if (image === null || text === sent) return;
        sent = text;
        window.parent.postMessage({ type: 'recoquest.active-image', image, patients }, window.location.origin);
      };
      const { EVENTS } = services.viewportGridService;
      for (const name of [EVENTS.ACTIVE_VIEWPORT_ID_CHANGED, EVENTS.GRID_STATE_CHANGED, EVENTS.VIEWPORTS_READY]) {
        if (name) services.viewportGridService.subscribe(name, tell);
      }
      // Images that a stack is scrolled to.
      document.addEventListener('CORNERSTONE_STACK_NEW_IMAGE', tell, true);
      tell();
    },
  };

  // Its tour for beginners would cover the images.
  localStorage.setItem('shownTours', JSON.stringify(['basicViewerTour']));

  window.config = {
    name: 'recoquest',
    routerBasename: base,
    showStudyList: false,
    extensions: [tellActive],
    modes: [],
    customizationService: {},
    maxNumberOfWebWorkers: 2,
    showWarningMessageForCrossOrigin: false,
    showCPUFallbackMessage: false,
    showLoadingIndicator: true,
    showPatientInfo: 'visible',
    investigationalUseDialog: { option: 'never' },
    defaultDataSourceName: 'archive',
    dataSources: [{
      namespace: '@ohif/extension-default.dataSourcesModule.dicomweb',
      sourceName: 'archive',
      configuration: {
        friendlyName: 'Archive', name: 'archive', wadoUriRoot: archive, qidoRoot: archive, wadoRoot: archive,
        qidoSupportsIncludeField: true, imageRendering: 'wadors', thumbnailRendering: 'wadors', enableStudyLazyLoad: true,
        supportsFuzzyMatching: false, supportsWildcard: true, omitQuotationForMultipartRequest: true,
        bulkDataURI: { enabled: true, relativeResolution: 'studies' },
      },
    }],
  };
})();
